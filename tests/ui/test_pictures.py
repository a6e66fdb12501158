"""Pictures that were given to the page."""

import asyncio
import io

import numpy as np
import pytest
from PIL import Image

from evoem.images.files import FileError, Picture
from evoem.ui import pictures
from evoem.ui.pictures import Given, Pictures, discard, safe_name

GREY = np.arange(12 * 10, dtype=np.uint8).reshape(12, 10)


async def in_parts(*parts):
    for part in parts:
        yield part


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def given_of(pixels, colour=False, stack=False, **more):
    return Given("in.tif", Picture(pixels, None, colour, stack, {}, **more))


@pytest.fixture
def room(tmp_path):
    return Pictures(tmp_path, 1000)


def upload(room, name, *parts):
    return asyncio.run(room.upload(name, in_parts(*parts)))


def test_an_upload_is_read_and_nothing_of_it_stays(room, tmp_path):
    content = png(GREY)
    path = upload(room, "in.png", content[:7], content[7:])
    number = room.read("in.png", path)
    discard(path)
    np.testing.assert_array_equal(room[number].picture.pixels, GREY)
    assert room[number].facts() == {
        "name": "in.png", "rows": 12, "columns": 10, "channels": 1, "slices": 1, "type": "uint8",
        "notes": [], "masked": 0, "empty": 0,
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_is_too_large_is_refused_and_removed(room, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    with pytest.raises(FileError, match=r"in\.png must have at most"):
        upload(room, "in.png", b"12345", b"678901")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (png(np.zeros((40, 40), np.uint8)), r"^in\.png must have at most 1000 pixels"),
        (b"nonsense", r"^in\.png must be a"),
        (b"", r"^in\.png must hold a picture; got an empty file"),
    ],
)
def test_what_is_no_picture_is_refused_by_the_name_it_was_given(content, sentence, room):
    with pytest.raises(FileError, match=sentence):
        room.read("in.png", upload(room, "in.png", content))


def test_a_mask_is_taken_and_taken_away(room):
    number = room.read("in.png", upload(room, "in.png", png(GREY)))
    mask = np.zeros(GREY.shape, np.uint8)
    mask[2:4, 3:6] = 255
    given = room.mask(number, upload(room, "mask.png", png(mask)))
    np.testing.assert_array_equal(given.missing(0), mask > 0)
    assert given.facts()["masked"] == 6
    assert room.mask(number, None).missing(0) is None
    with pytest.raises(FileError, match=r"^mask mask\.png must have the size of the picture"):
        room.mask(number, upload(room, "mask.png", png(mask[1:])))


def test_only_the_latest_are_kept(room, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PICTURES", 2)
    numbers = [room.read("in.png", upload(room, "in.png", png(GREY))) for _ in range(3)]
    assert room[numbers[1]].name == room[numbers[2]].name == "in.png"
    with pytest.raises(FileError, match="has expired"):
        room[numbers[0]]


def test_what_a_file_says_of_its_noise_is_known_unless_it_is_not_wanted():
    pixels = np.zeros((3, 12, 10))
    variance = np.arange(3 * 120.0).reshape(pixels.shape)
    stack = given_of(pixels, stack=True, noise_variance=variance)
    np.testing.assert_array_equal(stack.stack(of_noise=True).noise_variances, variance)
    assert stack.stack(of_noise=False).noise_variances == [None] * 3
    (one,) = given_of(pixels[0], noise_variance=variance[1]).stack(of_noise=True).noise_variances
    np.testing.assert_array_equal(one, variance[1])


@pytest.mark.parametrize("per_slice", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_what_is_missing_of_a_slice_is_what_file_and_mask_say(colour, per_slice):
    shape = (3, 6, 5, 2) if colour else (3, 6, 5)
    own, mask = np.zeros(shape, bool), np.zeros((6, 5), bool)
    own[1, 2, 3] = mask[0, 0] = True
    if per_slice:
        mask = np.stack([mask, mask, ~mask])
    given = given_of(np.zeros(shape), colour, True, missing=own)._replace(mask=mask)
    for number in range(3):
        of_slice = mask[number] if per_slice else mask
        expected = own[number] | (of_slice[..., None] if colour else of_slice)
        np.testing.assert_array_equal(given.missing(number), expected)


def test_before_and_after_have_the_same_black_and_white():
    values = np.linspace(10.0, 20.0, 120).reshape(12, 10)
    given = given_of(values)
    before, after = (
        np.asarray(Image.open(io.BytesIO(given.png(0, restored))).convert("RGB"))
        for restored in (None, values)
    )
    np.testing.assert_array_equal(before, after)
    holes = values.copy()
    holes[3, 4] = np.nan
    shown = np.asarray(Image.open(io.BytesIO(given_of(holes).png(0))).convert("RGB"))
    np.testing.assert_array_equal(shown[3, 4], [230, 51, 51])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("house.png", "house.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\pictures\\a b.tif", "a b.tif"),
        (".hidden", "hidden"),
        ("x.h5:/part", "part"),
        ('a"\r\nb;.png', "a___b_.png"),
        ("Bäume.png", "Bäume.png"),
        ("", "picture"),
        ("a" * 200 + ".png", "a" * 76 + ".png"),
    ],
)
def test_names_have_no_folders_and_no_meaning(name, expected):
    assert safe_name(name) == expected


def test_stacks_have_slices():
    given = given_of(np.zeros((4, 6, 5), np.uint16), stack=True)
    assert given.n_slices == 4
    assert given.facts()["slices"] == 4
