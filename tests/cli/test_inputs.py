"""What is read besides the picture, and pictures that cannot be read whole."""

import json
import os

import numpy as np
import pytest
import tifffile
from command_line import SAME, SIZE, TINY, invoke, noisy, refused
from PIL import Image

from evoem import restore
from evoem.images import files


def test_a_missing_file_is_an_error(tmp_path):
    said = refused(tmp_path, "denoise", tmp_path / "none.png", "-o", tmp_path / "out.png")
    assert "none.png must be an existing file" in said


def test_a_truncated_file_is_an_error(tmp_path, picture):
    picture.write_bytes(picture.read_bytes()[:100])
    said = refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png")
    assert "whole and readable" in said


def test_a_mask_of_another_size_is_an_error(tmp_path, picture):
    Image.fromarray(np.eye(5, dtype=np.uint8)).save(tmp_path / "mask.png")
    arguments = "inpaint", picture, "-o", tmp_path / "out.png", "--mask", tmp_path / "mask.png"
    assert "24 x 22; got 5 x 5" in refused(tmp_path, *arguments)


def test_a_mask_of_everything_is_an_error(tmp_path, picture):
    Image.fromarray(np.full(SIZE, 255, np.uint8)).save(tmp_path / "mask.png")
    arguments = "inpaint", picture, "-o", tmp_path / "out.png", "--mask", tmp_path / "mask.png"
    assert "got all missing" in refused(tmp_path, *arguments)


@pytest.mark.parametrize("given", [True, False])
def test_inpainting_needs_something_missing(tmp_path, picture, given):
    Image.fromarray(np.zeros(SIZE, np.uint8)).save(tmp_path / "mask.png")
    arguments = ["--mask", tmp_path / "mask.png"] if given else []
    said = refused(tmp_path, "inpaint", picture, "-o", tmp_path / "out.png", *arguments)
    assert "mask must mark missing pixels unless the image has NaN" in said


def test_a_reference_of_another_size_is_an_error(tmp_path, picture):
    Image.fromarray(noisy((12, 12))).save(tmp_path / "clean.png")
    arguments = "denoise", picture, "-o", tmp_path / "out.png"
    said = refused(tmp_path, *arguments, "--reference", tmp_path / "clean.png")
    assert "must have the shape of the picture, (24, 22); got (12, 12)." in said


@pytest.mark.parametrize(
    ("value", "sentence"),
    [(1e200, "must have values of at most 1e+100"), (np.nan, "must have values of at most")],
)
def test_a_reference_that_cannot_be_compared_with_is_an_error(tmp_path, picture, value, sentence):
    np.save(tmp_path / "clean.npy", np.full(SIZE, value))
    arguments = "denoise", picture, "-o", tmp_path / "out.png", "--json", tmp_path / "out.json"
    assert sentence in refused(tmp_path, *arguments, "--reference", tmp_path / "clean.npy")


@pytest.mark.parametrize("scale", [1e90, 1e-200])
def test_a_reference_of_another_scale_is_compared_with(tmp_path, scale):
    np.save(tmp_path / "in.npy", noisy(dtype=np.float64) / scale)
    np.save(tmp_path / "clean.npy", noisy(dtype=np.float64))
    arguments = "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy"
    arguments += "--json", tmp_path / "out.json", "--reference", tmp_path / "clean.npy"
    assert invoke(*arguments, *TINY).exit_code == 0
    assert "before" in json.loads((tmp_path / "out.json").read_text())["psnr"]


def test_what_is_missing_is_told_and_recorded(tmp_path):
    pixels = noisy(dtype=np.float32)
    pixels[3, 4:6], pixels[9, 9], pixels[12, 2] = -9999, -3.4e38, 77
    tag = [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite(tmp_path / "in.tif", pixels, extratags=tag, metadata=None)
    arguments = "denoise", tmp_path / "in.tif", "-o", tmp_path / "out.tif"
    arguments += "--json", tmp_path / "out.json", "--missing-value", 77
    result = invoke(*arguments, *TINY)
    notes = [
        "2 pixels are -9999, which the file declares as missing (GDAL_NODATA).",
        "1 value equal to missing_value, 77, was treated as missing.",
        "1 value far from all others, such as -3.4e+38, was treated as missing.",
    ]
    assert result.stdout.splitlines()[1:4] == notes
    assert json.loads((tmp_path / "out.json").read_text())["notes"][:3] == notes
    assert tifffile.imread(tmp_path / "out.tif").min() > 0


def test_a_picture_that_ends_early_is_restored_from_what_is_there(tmp_path, picture):
    picture.write_bytes(picture.read_bytes()[:-150])
    arguments = "denoise", picture, "-o", tmp_path / "out.png"
    assert "its data end early" in refused(tmp_path, *arguments)
    result = invoke(*arguments, *TINY, "--accept-truncated")
    assert result.exit_code == 0
    assert "The file ends early: " in result.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names there")
@pytest.mark.parametrize(
    "option", ["picture", "--mask", "--reference", "--noise-variance", "--noise"]
)
def test_only_files_are_read(tmp_path, picture, option):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    given = [pipe] if option == "picture" else [picture, option, pipe]
    said = refused(tmp_path, "inpaint", *given, "-o", tmp_path / "out.png")
    assert said == f"evoem: {pipe} must be a file; got a pipe, a device or the like.\n"


def fits_planes(path):
    """A picture in FITS with noise that is weak on the left, and a bad pixel."""
    astropy_fits = pytest.importorskip("astropy.io.fits", reason="astropy is not installed: FITS")
    deviations = np.where(np.arange(SIZE[1]) < 11, 1.0, 20.0) * np.ones(SIZE)
    quality = np.zeros(SIZE, np.uint8)
    quality[4, 5] = 1
    planes = [noisy(dtype=np.float32), deviations.astype(np.float32), quality]
    hdus = [
        astropy_fits.ImageHDU(p, name=n) for p, n in zip(planes, ("SCI", "ERR", "DQ"), strict=True)
    ]
    astropy_fits.HDUList([astropy_fits.PrimaryHDU(), *hdus]).writeto(path)
    return planes


def test_quality_and_error_planes_are_mask_and_variance(tmp_path):
    values, deviations, quality = fits_planes(tmp_path / "in.fits")
    done = invoke("denoise", tmp_path / "in.fits", "-o", tmp_path / "out.fits", *TINY)
    assert done.exit_code == 0, done.output
    assert "1 pixels are marked as missing by the extension DQ.\n" in done.stdout
    holes = np.where(quality > 0, np.nan, values)
    expected = restore(holes, noise_variance=deviations.astype(float) ** 2, **SAME).image
    np.testing.assert_array_equal(files.read(tmp_path / "out.fits").pixels, expected)
    done = invoke("denoise", tmp_path / "in.fits", "-o", tmp_path / "white.fits", "--noise",
                  "gaussian", *TINY)  # fmt: skip
    assert done.exit_code == 0, done.output
    expected = restore(holes, noise="gaussian", **SAME).image
    np.testing.assert_array_equal(files.read(tmp_path / "white.fits").pixels, expected)
    command = "inpaint", tmp_path / "in.fits", "-o", tmp_path / "filled.fits"
    assert invoke(*command, *TINY).exit_code == 0
    filled = files.read(tmp_path / "filled.fits").pixels
    assert ((filled == values) == (quality == 0)).all()


def test_an_input_is_not_written_over_by_a_part_of_it(tmp_path):
    fits_planes(tmp_path / "in.fits")
    said = refused(tmp_path, "denoise", f"{tmp_path / 'in.fits'}:/SCI", "-o",
                   tmp_path / "in.fits", "--force")  # fmt: skip
    assert "must not be written over: it is read" in said


def test_axes_are_named_for_the_picture_and_its_reference(tmp_path):
    stack = np.stack([noisy(), noisy(seed=1)])
    np.save(tmp_path / "in.npy", stack)
    command = "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy", "--axes", "CYX"
    done = invoke(*command, "--reference", tmp_path / "in.npy", *TINY)
    assert done.exit_code == 0, done.output
    expected = restore(stack, channel_axis=0, **SAME).image
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
