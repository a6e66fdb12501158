"""A picture that is read and prepared in several processes is the one that a single one has."""

import numpy as np
import pytest
from process_threads import together

from evoem.images import bands, canonical_arrays, journal, noise_stage
from evoem.images.bands import even
from evoem.images.image_models import IMAGE_MODELS, settings_of
from evoem.images.noise import share_of_noise
from evoem.images.noise_model import Noise
from evoem.runtime.communicator import ALONE

RNG = np.random.default_rng(0)
PLAIN = 100.0 + np.add.outer(np.arange(40), np.arange(31)) + RNG.normal(0, 3, (40, 31))
HOLES = np.where(RNG.random(PLAIN.shape) < 0.2, np.nan, PLAIN)
HOLES[20:27, 4:12] = np.nan
FAR = PLAIN.copy()
FAR[[3, 30], [5, 6]] = -3.4e38
NEARER_GAP = PLAIN.copy()
NEARER_GAP[11, 12] = 1e5
COLOUR = np.stack([PLAIN, PLAIN[::-1], FAR], 0)
GIVEN = {
    "plain": (PLAIN, {}),
    "dark": (PLAIN * 1e-9, {}),
    "bright": (PLAIN.round().astype(np.uint16) + np.uint16(60_000), {}),
    "holes": (HOLES, {}),
    "far": (FAR, {}),
    "nearer gap": (NEARER_GAP, {}),
    "colour": (COLOUR, {"channel_axis": 0}),
    "mask": (PLAIN, {"mask": PLAIN > 150}),
    "map": (PLAIN, {"noise_variance": np.where(PLAIN > 150, 5.0, 9.0)}),
    "one value": (np.full((9, 8), 3.0), {}),
}


def read(name, comm):
    image, options = GIVEN[name]
    options = {"mask": None, "channel_axis": None, "alpha": False} | options
    return canonical_arrays.read(image, comm=comm, **options)


def told(canonical):
    """What must not depend on the number of processes."""
    whole = canonical_arrays.everywhere(canonical)
    return {
        "values": whole.values,
        "observed": whole.observed,
        "numbers": (canonical.offset, canonical.scale, canonical.shape, canonical.notes),
        "flags": (canonical.implausible_alone, canonical_arrays.is_constant(canonical)),
        "noise": share_of_noise(canonical.values, canonical.band),
        "settings": settings_of(IMAGE_MODELS["ebsc"], "fast", {}, canonical),
        "fingerprint": journal.fingerprint([canonical]),
    }


@pytest.mark.parametrize("few", [0, bands.FEW])
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("name", GIVEN)
def test_a_picture_is_read_by_rows(name, n, few, monkeypatch):
    monkeypatch.setattr(bands, "FEW", few)
    expected = told(read(name, ALONE))
    for found in together(n, lambda comm: told(read(name, comm))):
        for key, value in expected.items():
            np.testing.assert_equal(found[key], value, err_msg=key)


def test_values_far_from_all_others_are_found_in_any_process():
    found = read("far", ALONE)
    np.testing.assert_array_equal(~found.observed[..., 0], FAR < 0)
    (note,) = found.notes
    assert note == "2 values far from all others, such as -3.4e+38, were treated as missing."


def test_each_process_holds_its_rows_only():
    for rank, found in enumerate(together(3, lambda comm: read("holes", comm))):
        own = even(40, together(3, lambda comm: comm)[rank]).rows
        np.testing.assert_array_equal(found.image, HOLES[own])
        assert len(found.values) == len(found.observed) == own.stop - own.start


@pytest.mark.parametrize("name", ["holes", "colour", "map"])
def test_rows_are_taken_of_a_picture_that_every_process_has(name):
    whole = read(name, ALONE)
    pairs = together(3, lambda comm: (canonical_arrays.rows_for(whole, comm), read(name, comm)))
    for taken, expected in pairs:
        for field, value in expected._asdict().items():
            if field != "shared":
                np.testing.assert_equal(getattr(taken, field), value, err_msg=field)
        assert taken.shared.own == expected.shared.own
    assert canonical_arrays.rows_for(whole, ALONE) is whole


def prepared(comm, image):
    canonical = canonical_arrays.read(image, None, None, False, comm=comm)
    found = noise_stage.prepare(canonical, "auto", False)
    whole = canonical_arrays.everywhere(found.canonical)
    back = whole.band.everywhere(found.canonical.pixels(found.canonical.values))
    if comm.size > 1:
        back = found.canonical.band.everywhere(found.canonical.pixels(found.canonical.values))
    return whole.values, whole.observed, back, found.noise, found.notes


@pytest.mark.parametrize("largest", [1 << 22, 1 << 14])
def test_noise_is_told_and_made_white_the_same_by_any_number_of_processes(largest, monkeypatch):
    monkeypatch.setattr(noise_stage, "LARGEST", largest)
    monkeypatch.setattr(noise_stage, "TILE", 64)
    rng = np.random.default_rng(3)
    clean = 60 + 50 * np.sin(np.arange(300) / 40)[:, None] * np.cos(np.arange(200) / 30)
    image = 2.0 * rng.poisson(clean) + rng.normal(0, 2, clean.shape)
    hot = rng.random(clean.shape) < 0.01
    image[hot] += 400
    alone = prepared(ALONE, image)
    _, observed, back, noise, notes = alone
    assert isinstance(noise, Noise)
    assert noise.kind == "poisson-gaussian"
    assert np.mean(~observed[..., 0][hot]) > 0.9
    assert np.mean(~observed[..., 0][~hot]) < 1e-3
    assert "outliers were treated as missing" in notes[0]
    np.testing.assert_allclose(back[..., 0][~hot], image[~hot], rtol=0.02, atol=10)
    for found in together(3, lambda comm: prepared(comm, image)):
        for one, other in zip(found[:3], alone[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        assert found[3:] == alone[3:]


def test_a_large_picture_shows_its_noise_in_tiles_from_all_over_it(monkeypatch):
    monkeypatch.setattr(noise_stage, "LARGEST", 4 * 32 * 32)
    monkeypatch.setattr(noise_stage, "TILE", 32)
    image = np.add.outer(1000.0 * np.arange(200), np.arange(130))
    canonical = canonical_arrays.read(image, None, None, False)
    seen = noise_stage.to_be_told_from(canonical)
    assert seen.values.shape == (64, 64, 1)
    pixels = seen.pixels(seen.values)[..., 0]
    rows, columns = pixels[:, 0] // 1000, pixels[0] % 1000
    np.testing.assert_allclose(rows, [*range(32), *range(168, 200)])
    np.testing.assert_allclose(columns, [*range(32), *range(96, 128)], atol=0.1)
