"""FITS: values, headers, and what quality and error planes say."""

import gzip

import numpy as np
import pytest
from file_pictures import assert_same, grey, random_pixels, refused

from evoem.images import files
from evoem.images.files import FileError, Picture
from evoem.images.files.picture import of_deviations

astropy_fits = pytest.importorskip("astropy.io.fits", reason="astropy is not installed: FITS")

rng = np.random.default_rng(3)


def science(shape=(7, 9), dtype="float32", name="SCI", **cards):
    hdu = astropy_fits.ImageHDU(random_pixels(shape, dtype), name=name)
    hdu.header["BUNIT"] = ("MJy/sr", "of the values")
    hdu.header["CRVAL1"] = 5.6305
    hdu.header["LONGCARD"] = "words " * 20
    hdu.header.update(cards)
    return hdu


def saved(path, *hdus, **options):
    if not isinstance(hdus[0], astropy_fits.PrimaryHDU):
        hdus = (astropy_fits.PrimaryHDU(), *hdus)
    astropy_fits.HDUList(list(hdus)).writeto(path, **options)
    return path


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint32", "int64", "int8",
                                   "float32", "float64"])  # fmt: skip
def test_numbers_of_every_type_come_back(tmp_path, dtype):
    for name, shape in (("a.fits", (7, 9)), ("b.fit", (5, 7, 9)), ("c.fts", (7, 9, 3))):
        picture = Picture(random_pixels(shape, dtype), None, shape[-1] == 3, shape[0] == 5, {})
        files.write(tmp_path / name, picture)
        axes = "CYX" if name == "c.fts" else None
        assert_same(files.read(tmp_path / name, axes=axes), picture)


def test_headers_and_everything_around_the_picture_come_back(tmp_path):
    table = astropy_fits.BinTableHDU.from_columns(
        [astropy_fits.Column(name="x", format="E", array=np.arange(4.0))], name="CAT"
    )
    primary = astropy_fits.PrimaryHDU()
    primary.header["TELESCOP"] = "a glass"
    saved(tmp_path / "a.fits", primary, science(), table, checksum=True)
    picture = files.read(tmp_path / "a.fits")
    changed = picture._replace(pixels=picture.pixels + 1)
    files.write(tmp_path / "b.fits", changed)
    with (
        astropy_fits.open(tmp_path / "a.fits") as before,
        astropy_fits.open(tmp_path / "b.fits", checksum=True) as after,
    ):
        for place in (0, 2):
            assert before[place].header == after[place].header
        np.testing.assert_array_equal(before[2].data, after[2].data)
        np.testing.assert_array_equal(after[1].data, before[1].data + 1)
        told = [card for card in after[1].header.cards if card.keyword != "HISTORY"]
        sums = ("CHECKSUM", "DATASUM")
        assert [tuple(card) for card in told if card.keyword not in sums] == [
            tuple(card) for card in before[1].header.cards if card.keyword not in sums
        ]
        assert after[1].header["DATASUM"] != before[1].header["DATASUM"]
        assert str(after[1].header["HISTORY"]).startswith("Restored by evoem ")


def test_scaled_integers_come_back_as_the_numbers_they_stand_for(tmp_path):
    values = rng.integers(-99, 99, (7, 9)).astype("int16")
    values[2, 3] = -7
    astropy_fits.PrimaryHDU(values).writeto(tmp_path / "a.fits")
    with astropy_fits.open(
        tmp_path / "a.fits", mode="update", do_not_scale_image_data=True
    ) as file:
        file[0].header.update({"BLANK": -7, "BSCALE": 0.5, "BZERO": 10.0})
    picture = files.read(tmp_path / "a.fits")
    np.testing.assert_array_equal(picture.pixels, 0.5 * values + 10)
    np.testing.assert_array_equal(picture.missing, values == -7)
    files.write(tmp_path / "b.fits", picture)
    with astropy_fits.open(tmp_path / "b.fits") as file:
        assert not {"BLANK", "BSCALE", "BZERO"} & set(file[0].header)
        np.testing.assert_array_equal(file[0].data, 0.5 * values + 10)


@pytest.mark.parametrize(("dtype", "zero"), [("int16", 0), ("uint16", 32768)])
def test_blank_values_are_missing(tmp_path, dtype, zero):
    values = rng.integers(0, 99, (7, 9)).astype(dtype)
    values[1, 2] = 100
    saved(tmp_path / "a.fits", astropy_fits.PrimaryHDU(values))
    with astropy_fits.open(
        tmp_path / "a.fits", mode="update", do_not_scale_image_data=True
    ) as file:
        file[0].header["BLANK"] = 100 - zero
    picture = files.read(tmp_path / "a.fits")
    assert np.argwhere(picture.missing).tolist() == [[1, 2]]
    assert picture.notes == ("1 pixels are BLANK and count as missing.",)
    files.write(tmp_path / "b.fits", picture)
    assert files.read(tmp_path / "b.fits").missing is None


@pytest.mark.parametrize("telescope", ["HST", "JWST"])
def test_data_quality_is_a_mask(tmp_path, telescope):
    quality = np.zeros((7, 9), np.uint32)
    quality[1, 2], quality[3, 4] = 4, 5  # the first bit says that a value is of no use
    primary = astropy_fits.PrimaryHDU()
    primary.header["TELESCOP"] = telescope
    path = saved(tmp_path / "a.fits", primary, science(), astropy_fits.ImageHDU(quality, name="DQ"))
    picture = files.read(path)
    expected = [[3, 4]] if telescope == "JWST" else [[1, 2], [3, 4]]
    assert np.argwhere(picture.missing).tolist() == expected
    assert picture.notes == (f"{len(expected)} pixels are marked as missing by the extension DQ.",)
    files.write(tmp_path / "b.fits", picture)
    with astropy_fits.open(tmp_path / "b.fits") as file:
        np.testing.assert_array_equal(file["DQ"].data, quality)


VARIANCE = rng.uniform(1, 9, (7, 9)).astype("float32")


@pytest.mark.parametrize(
    ("name", "plane", "cards"),
    [
        ("ERR", np.sqrt(VARIANCE), {}),
        ("STDDEV", np.sqrt(VARIANCE), {}),
        ("UNCERT", np.sqrt(VARIANCE), {"UTYPE": "StdDevUncertainty"}),
        ("UNCERT", VARIANCE, {"UTYPE": "VarianceUncertainty"}),
        ("UNCERT", 1 / VARIANCE, {"UTYPE": "InverseVariance"}),
        ("VAR", VARIANCE, {}),
        ("WHT", 1 / VARIANCE, {}),
    ],
)
def test_error_planes_are_variances(tmp_path, name, plane, cards):
    plane = plane.copy()
    plane[0, 0], plane[0, 1] = (0, 0) if name == "WHT" else (np.nan, 0)
    hdu = astropy_fits.ImageHDU(plane, name=name)
    hdu.header.update(cards)
    picture = files.read(saved(tmp_path / "a.fits", science(), hdu))
    assert np.isposinf(picture.noise_variance[0, :2]).all()
    np.testing.assert_allclose(picture.noise_variance[1:], VARIANCE[1:], rtol=1e-5)
    assert picture.notes == (f"The extension {name} gives the noise of each pixel.",)
    for kept in (True, False):
        variance = picture.noise_variance if kept else None
        path = tmp_path / f"{kept}.fits"
        files.write(path, picture._replace(noise_variance=variance))
        with astropy_fits.open(path) as file:
            assert (name in file) == kept


def test_standard_deviations_have_the_header_alone(tmp_path):
    path = saved(tmp_path / "a.fits", science(dtype="int16"), science(name="OTHER", shape=(3, 3)))
    picture = files.read(f"{path}:/SCI")
    std = random_pixels((7, 9), "float32")
    deviations = picture._replace(pixels=std, metadata=of_deviations(picture.metadata))
    files.write(tmp_path / "std.fits", deviations)
    with astropy_fits.open(tmp_path / "std.fits") as file:
        assert len(file) == 1
        assert file[0].header["CRVAL1"] == 5.6305
        np.testing.assert_array_equal(file[0].data, std)


def test_one_of_several_extensions_is_asked_for(tmp_path):
    chips = [science(ver=1), science(name="SCI")]
    chips[1].ver = 2
    path = saved(tmp_path / "a.fits", *chips)
    refused(path, r"must have one picture.* :/SCI,1, :/SCI,2; got none asked for\.")
    refused(f"{path}:/SCI,3", r"must have one picture.*; got 'SCI,3'\.")
    for part, chip in (("SCI,2", 1), ("2", 1), ("1", 0), ("SCI", 0)):
        assert_same(files.read(f"{path}:/{part}"), grey(chips[chip].data))
    files.write(tmp_path / "b.fits", files.read(f"{path}:/SCI,2"))
    assert_same(files.read(tmp_path / "b.fits:/1"), grey(chips[0].data))


def test_compressed_files_are_read_and_written_plainly(tmp_path):
    values = rng.integers(0, 99, (40, 50)).astype("int16")
    tiles = astropy_fits.CompImageHDU(values, compression_type="RICE_1", name="SCI")
    path = saved(tmp_path / "a.fits", tiles)
    assert_same(files.read(path), grey(values))
    files.write(tmp_path / "b.fits", files.read(path))
    assert_same(files.read(tmp_path / "b.fits"), grey(values))
    (tmp_path / "c.fits.gz").write_bytes(gzip.compress((tmp_path / "b.fits").read_bytes()))
    found = files.read(tmp_path / "c.fits.gz")
    assert_same(found, grey(values))
    files.write(tmp_path / "d.fits", found)
    assert_same(files.read(tmp_path / "d.fits"), grey(values))


def test_a_cube_is_a_stack(tmp_path):
    cube = random_pixels((4, 7, 9), "float32")
    saved(tmp_path / "a.fits", astropy_fits.PrimaryHDU(cube[:, None]))
    picture = files.read(tmp_path / "a.fits")
    assert_same(picture, Picture(cube, None, False, True, {}))
    files.write(tmp_path / "b.fits", picture)
    assert astropy_fits.getdata(tmp_path / "b.fits").shape == (4, 1, 7, 9)


def test_files_that_are_large_by_their_header_alone_or_cut_off_are_refused(tmp_path):
    header = astropy_fits.Header([("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", 10**6),
                                  ("NAXIS2", 10**6)])  # fmt: skip
    (tmp_path / "a.fits").write_text(header.tostring())
    refused(tmp_path / "a.fits", "must have at most 268435456 pixels")
    path = saved(tmp_path / "b.fits", science(shape=(70, 90)))
    path.write_bytes(path.read_bytes()[:-5000])
    refused(path, "must be a whole and readable picture")
    saved(tmp_path / "c.fits", astropy_fits.PrimaryHDU())
    refused(tmp_path / "c.fits", r"must have one picture.* of none; got none asked for\.")


def test_without_astropy_the_format_is_named(tmp_path, monkeypatch):
    path = saved(tmp_path / "a.fits", science())
    monkeypatch.setattr("evoem.images.files.find_spec", lambda name: None)
    sentence = (
        r"a\.fits must be .*; for FITS run pip install 'evoem\[astro\]', which installs astropy"
    )
    with pytest.raises(FileError, match=sentence):
        files.read(path)
    with pytest.raises(FileError, match=sentence):
        files.check_format(path, grey(np.zeros((3, 3))))


def test_a_tile_is_not_unpacked_beyond_its_room(tmp_path):
    options = {"compression_type": "GZIP_1", "tile_shape": (7, 9)}
    tiles = astropy_fits.CompImageHDU(random_pixels((7, 9), "uint8"), **options)
    whole = saved(tmp_path / "a.fits", tiles)
    assert files.read(whole).pixels.shape == (7, 9)
    with astropy_fits.open(whole, disable_image_compression=True) as file:
        packed = np.array([np.frombuffer(gzip.compress(bytes(1 << 25)), "u1")], object)
        column = astropy_fits.Column("COMPRESSED_DATA", "1PB()", array=packed)
        table = astropy_fits.BinTableHDU.from_columns([column])
        table.header.update({
            keyword: value for keyword, value in file[1].header.items() if keyword[0] == "Z"
        })  # fmt: skip
        saved(tmp_path / "b.fits", table)
    refused(tmp_path / "b.fits", "a tile of 504 bytes unpacks to far more")


def test_headers_are_not_unpacked_without_limit(tmp_path):
    content = saved(tmp_path / "a.fits", science()).read_bytes()
    endless = content[:2880].replace(b"END", b"   ") + b" " * (1 << 25)
    (tmp_path / "b.fits").write_bytes(gzip.compress(endless))
    with pytest.raises(FileError, match="must be a whole and readable picture"):
        files.read(tmp_path / "b.fits")


def test_a_packed_file_is_measured_as_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BYTES_OF_METADATA", 1 << 20)
    content = saved(tmp_path / "a.fits", science()).read_bytes()
    (tmp_path / "b.fits").write_bytes(gzip.compress(content + bytes(1 << 25)))
    with pytest.raises(FileError, match="must not be larger than 7 x 9 pixels can be; got more"):
        files.read(tmp_path / "b.fits")
