"""Files to be damaged, and ways of damaging them."""

import gzip
import io
import json
import struct
from importlib.util import find_spec

import numpy as np
import tifffile
from hypothesis import strategies as st
from PIL import Image

rng = np.random.default_rng(0)
GREY = (100 + 40 * (np.indices((16, 14)).sum(0) // 5 % 2) + rng.normal(0, 5, (16, 14))).astype("u1")
COLOUR = np.stack([GREY, 255 - GREY, GREY // 2], axis=-1)
STACK = np.stack([GREY, GREY[::-1]])
HOLES = np.where(rng.random(GREY.shape) < 0.2, 255, 0).astype("u1")


def saved(save, *arguments, **options):
    """What a function writes into a file."""
    file = io.BytesIO()
    save(file, *arguments, **options)
    return file.getvalue()


def image(pixels, kind, **options):
    return saved(Image.fromarray(pixels).save, kind, **options)


def tiff(pixels, **options):
    return saved(tifffile.imwrite, pixels, **options)


def dicom():
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

    about = FileMetaDataset()
    about.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    about.MediaStorageSOPInstanceUID = "1.2.3"
    about.TransferSyntaxUID = ExplicitVRLittleEndian
    told = FileDataset(None, {}, file_meta=about, preamble=bytes(128))
    told.SOPClassUID, told.SOPInstanceUID = SecondaryCaptureImageStorage, "1.2.3"
    told.Rows, told.Columns = GREY.shape
    told.SamplesPerPixel, told.PhotometricInterpretation = 1, "MONOCHROME2"
    told.BitsAllocated, told.BitsStored, told.HighBit, told.PixelRepresentation = 8, 8, 7, 0
    told.PixelData = GREY.tobytes()
    return saved(told.save_as, enforce_file_format=True)


def by_instruments():
    """Files of the formats whose packages are here."""
    found = {}
    if find_spec("astropy"):
        from astropy.io import fits

        planes = [fits.ImageHDU(GREY, name="SCI"), fits.ImageHDU(HOLES, name="DQ")]
        found["planes.fits"] = saved(fits.HDUList([fits.PrimaryHDU(), *planes]).writeto)
        found["tiles.fits"] = saved(
            fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(GREY)]).writeto
        )
    if find_spec("nibabel"):
        import nibabel

        found["volume.nii"] = nibabel.Nifti1Image(STACK.T, np.eye(4)).to_bytes()
        found["packed.nii.gz"] = gzip.compress(found["volume.nii"], mtime=0)
    if find_spec("h5py"):
        import h5py

        file = io.BytesIO()
        with h5py.File(file, "w") as opened:
            opened.create_dataset("a/picture", data=GREY, compression="gzip")
        found["picture.h5"] = file.getvalue()
    if find_spec("pydicom"):
        found["picture.dcm"] = dicom()
    return found


PICTURES = {
    "grey.png": image(GREY, "PNG"),
    "colour.png": image(COLOUR, "PNG"),
    "deep.png": image(GREY.astype("u2") * 200, "PNG"),
    "palette.png": saved(Image.fromarray(COLOUR).quantize(8).save, "PNG"),
    "grey.jpg": image(GREY, "JPEG"),
    "colour.jpg": image(COLOUR, "JPEG", subsampling="4:2:0"),
    "progressive.jpg": image(COLOUR, "JPEG", progressive=True),
    "plain.tif": tiff(GREY),
    "float.tif": tiff(GREY.astype("f4")),
    "deflated.tif": tiff(COLOUR, photometric="rgb", compression="zlib"),
    "lzma.tif": tiff(GREY, compression="lzma"),
    "tiles.tif": tiff(GREY, tile=(16, 16), compression="zlib"),
    "stack.tif": tiff(STACK, photometric="minisblack"),
    "imagej.tif": tiff(STACK, imagej=True),
    "ome.tif": tiff(STACK, ome=True, metadata={"axes": "CYX"}),
    "big.tif": tiff(GREY, bigtiff=True),
    "missing.tif": tiff(GREY.astype("f4"), extratags=[(42113, "s", 0, "140", True)], metadata=None),
    "lzw.tif": image(COLOUR, "TIFF", compression="tiff_lzw"),
    "fax.tif": saved(Image.fromarray(GREY > 120).save, "TIFF", compression="group4"),
    "jpeg.tif": image(COLOUR, "TIFF", compression="jpeg"),
    "grey.npy": saved(np.save, GREY),
    "float.npy": saved(np.save, GREY.astype("f8")),
    "stack.npy": saved(np.save, STACK.astype("f4")),
    **by_instruments(),
    "mask.png": image(HOLES, "PNG"),
}
NOISE = json.dumps({"gain": 0.5, "offset": 2.0, "read_variance": 9.0, "notes": []}).encode()

# Numbers that have hurt somebody before.
SIZES = (0, 1, 2, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


@st.composite
def damaged(draw, content):
    """A file of which some is changed, cut off, repeated, left out or put in."""
    content = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        if not content:
            break
        start = draw(st.integers(0, len(content) - 1))
        if draw(st.booleans()):  # what counts is mostly at the front
            start = min(start, draw(st.integers(0, 200)))
        length = draw(st.integers(1, 40))
        match draw(
            st.sampled_from(("bytes", "bits", "size", "cut", "repeat", "leave out", "put in"))
        ):
            case "bytes":
                content[start : start + length] = draw(st.binary(min_size=1, max_size=8))
            case "bits":
                content[start] ^= 1 << draw(st.integers(0, 7))
            case "size":
                size = draw(st.sampled_from(SIZES))
                order = draw(st.sampled_from(("<", ">")))
                kind = draw(st.sampled_from("HIQ"))
                packed = struct.pack(order + kind, size % 2 ** (8 * struct.calcsize(kind)))
                content[start : start + len(packed)] = packed
            case "cut":
                del content[start:]
            case "repeat":
                content[start:start] = content[start : start + length]
            case "leave out":
                del content[start : start + length]
            case "put in":
                content[start:start] = draw(st.binary(max_size=40))
    return bytes(content)


@st.composite
def npy_of_any_header(draw):
    """An NPY file whose header says anything, with few bytes behind it."""
    number = st.one_of(
        st.integers(-2, 20), st.sampled_from((*SIZES, 10**12, 10**30)), st.booleans()
    )
    shape = tuple(draw(st.lists(number, max_size=5)))
    kinds = ("|V0", "|V8", "|b1", "<f2", ">f8", "<f16", "<c8", "|O", "<U4", "|S0", "<M8[s]", "<i8")
    header = {
        "descr": draw(st.sampled_from(kinds)),
        "fortran_order": draw(st.sampled_from((False, True, 0, None))),
        "shape": draw(st.sampled_from((shape, list(shape), shape[:1] and shape[0], None))),
    }
    text = repr(header).encode().ljust(117) + b"\n"
    version = draw(st.sampled_from(((1, 0), (2, 0), (3, 0), (9, 9))))
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + draw(st.binary(max_size=200))


def pictures():
    """A picture file and its name, whole or not."""
    whole = st.sampled_from(sorted(PICTURES))
    return st.one_of(
        whole.map(lambda name: (name, PICTURES[name])),
        whole.flatmap(lambda name: st.tuples(st.just(name), damaged(PICTURES[name]))),
        st.tuples(st.just("any.npy"), npy_of_any_header()),
        st.tuples(st.just("any.tif"), st.binary(max_size=60)),
    )
