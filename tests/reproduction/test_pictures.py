"""Pictures are found by what is in them."""

import numpy as np
import pytest

from evoem.images import files
from evoem.images.files import Picture
from evoem.reproduction import recipes
from evoem.reproduction.pictures import Library, Wanted, digest, leaves, substitute, wanted_by_paper


def write(path, pixels):
    files.write(path, Picture(pixels, None, pixels.ndim == 3, False, {}))


RIGHT = np.random.default_rng(0).integers(0, 256, (12, 9), np.uint8)
OTHER = np.clip(RIGHT.astype(int) + 1, 0, 255).astype(np.uint8)
STRANGE = RIGHT[:10]
HOUSE = Wanted(
    "new-house", "12 x 9 grey", digest(RIGHT), "Get it there.", {digest(OTHER): "brighter"}
)


def library(folder):
    return Library(folder, lambda name: HOUSE)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


@pytest.mark.parametrize("name", ["new_house.png", "02.tiff", "any.npy"])
def test_a_picture_is_known_by_its_pixels_whatever_its_file(folder, name):
    write(folder / name, RIGHT)
    write(folder / "another.png", STRANGE)
    for get in (library(folder).get, library(folder).get_or_substitute):
        found = get("new-house")
        np.testing.assert_array_equal(found.pixels, RIGHT)
        assert found.real
        assert found.says == ""


def test_a_known_variant_is_named(folder):
    write(folder / "some.png", OTHER)
    with pytest.raises(
        ValueError, match=r"must hold new-house, 12 x 9 grey; .*some.png: brighter\. Get"
    ):
        library(folder).get("new-house")


def test_an_unknown_variant_is_named_by_size_and_digest(folder):
    write(folder / "new_house.png", STRANGE)
    digests = f"{digest(STRANGE)[:12]} and not {digest(RIGHT)[:12]}"
    told = rf"another variant, .*new_house.png, 10x9, .* {digests}\. Get"
    with pytest.raises(ValueError, match=told):
        library(folder).get("new-house")


def test_where_to_get_what_is_not_there_is_said(folder):
    with pytest.raises(ValueError, match=r"got no folder\. Get it there\.$"):
        library(None).get("new-house")
    with pytest.raises(ValueError, match=r"found none in .*\. Get it there\.$"):
        library(folder).get("new-house")
    with pytest.raises(ValueError, match=r"^images must be a folder; got .*none\.$"):
        Library(folder / "none")


def test_another_picture_takes_its_place_and_says_so(folder):
    found = library(folder).get_or_substitute("new-house")
    assert not found.real
    assert found.says.startswith("new-house was not at hand: ")
    assert found.pixels.ndim == 2


def test_substitutes_are_of_the_same_kind_without_scikit_image_too(monkeypatch):
    for colour in (False, True):
        assert substitute(colour=colour)[0].ndim == 2 + colour
    monkeypatch.setitem(__import__("sys").modules, "skimage", None)
    for colour in (False, True):
        drawn, what = substitute(colour=colour)
        assert what == "a drawing of random discs"
        assert drawn.shape == ((256, 256, 3) if colour else (256, 256))
        assert drawn.std() > 30
    np.testing.assert_array_equal(leaves(colour=False), leaves(colour=False))


def test_every_picture_has_a_size_a_digest_and_a_source():
    for name in recipes.data("pictures"):
        one = wanted_by_paper(name)
        assert len(one.sha256) == 64
        assert one.source.endswith(".")
        assert one.sha256 not in one.others


def test_pictures_differ_by_type_and_shape():
    told = {digest(RIGHT), digest(RIGHT.T), digest(RIGHT.astype(np.uint16)), digest(OTHER)}
    assert len(told) == 4
    assert digest(RIGHT[:, ::-1][:, ::-1]) == digest(RIGHT)
