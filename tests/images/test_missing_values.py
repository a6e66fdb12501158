"""Values that are no measurements do not change what is made of the others."""

import numpy as np
import pytest

import evoem
from evoem.images import canonical_arrays, missing_values

rng = np.random.default_rng(8)


def scene(shape=(64, 64), noise=10.0):
    rows, columns = shape
    clean = 100.0 + 60 * (np.add.outer(np.arange(rows) // 8, np.arange(columns) // 8) % 2)
    return clean, clean + np.random.default_rng(0).normal(0, noise, shape)


def found(image, missing=None):
    image = np.asarray(image, np.float64)[..., None]
    missing = np.zeros(image.shape, bool) if missing is None else missing[..., None]
    return missing_values.implausible(image, missing)[..., 0]


@pytest.mark.parametrize("wrong", [[1e5] * 8, [-3.4e38], [1e5, -3.4e38, 1e7, -1e4]])
def test_the_error_of_other_pixels_stays(wrong):
    clean, noisy = scene()
    damaged, where = noisy.copy(), np.random.default_rng(1).choice(noisy.size, len(wrong), False)
    damaged.flat[where] = wrong
    others = np.ones(noisy.shape, bool)
    others.flat[where] = False

    def error(image):
        restored = evoem.restore(image, preset="fast", max_iter=4).image
        return np.sqrt(np.mean((restored - clean)[others] ** 2))

    assert error(damaged.astype(np.float32)) < 1.1 * error(noisy)


def test_what_is_missing_is_counted_and_told():
    _, noisy = scene()
    noisy[0, :3] = -9999
    noisy[5, 5] = 1e30
    result = evoem.restore(noisy, preset="fast", max_iter=1, missing_value=-9999)
    assert result.notes[:2] == (
        "3 values equal to missing_value, -9999, were treated as missing.",
        "1 value far from all others, such as 1e+30, was treated as missing.",
    )
    assert abs(result.image - 130).max() < 100


def test_missing_values_are_masked_values():
    _, noisy = scene((32, 32))
    mask = rng.random(noisy.shape) < 0.1
    declared = np.where(mask, 77, noisy).astype(np.float32)
    options = {"preset": "fast", "max_iter": 2}
    by_value = evoem.inpaint(declared, missing_value=77, **options)
    assert (by_value == evoem.inpaint(declared, mask, **options)).all()
    stack = np.stack([declared, declared])
    assert (evoem.denoise(stack, missing_value=77, **options)[1] != 77).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, "x", None.__class__])
def test_a_missing_value_is_a_number(value):
    with pytest.raises(ValueError, match="missing_value must be a number"):
        evoem.restore(np.eye(20), missing_value=value)


def test_values_are_rounded_to_the_pixels_type():
    image = np.zeros((4, 4), np.float32)
    image[1, 1] = 0.1
    assert canonical_arrays.read(image, None, None, False, None, 0.1).observed.sum() == 15
    for value in (0.5, 300, -1):
        assert (
            canonical_arrays.read(image.astype(np.uint8), None, None, False, None, value).observed
            is None
        )


def test_absurd_values_are_found_in_any_number():
    _, image = scene((20, 20))
    image[:15] = -3.4e38
    assert (found(image) == (image < 0)).all()
    assert not found(image[:15]).any()


def test_all_pictures_of_one_scale_are_plausible():
    for scale in (1e-30, 1.0, 1e35, 1e100):
        assert not found(scale * rng.normal(size=(30, 30))).any()


def test_light_is_plausible():
    rows, columns = np.mgrid[:64, :64]
    background = 100 + rng.normal(0, 3, (64, 64))
    star = 60000 * np.exp(-((rows - 30.3) ** 2 + (columns - 20.6) ** 2) / (2 * 1.2**2))
    assert not found(background + star).any()
    lamp = np.hypot(rows - 40, columns - 40) < 4
    assert not found(np.where(lamp, 1e5, background)).any()
    sparks = np.zeros((64, 64))
    sparks[rng.integers(0, 64, 20), rng.integers(0, 64, 20)] = 255
    assert not found(sparks).any()


def test_few_values_beyond_a_gap_are_found_alone_and_in_rows():
    _, image = scene()
    image[10, 10:18] = 1e4
    image[30, 40] = image[50, 3] = -2e4
    assert (found(image) == (abs(image) > 5e3)).all()


def test_each_channel_has_its_own_scale():
    _, image = scene()
    both = np.stack([image, 1e6 * image], axis=-1)
    both[3, 4, 0] = 1e6
    assert np.argwhere(missing_values.implausible(both, np.zeros(both.shape, bool))).tolist() == [
        [3, 4, 0]
    ]


def test_pixels_of_eight_bits_are_never_implausible():
    image = np.ones((64, 64), np.uint8)
    image[::2] = 2
    image[5, 5] = 255
    assert canonical_arrays.read(image, None, None, False).observed is None
