"""From image arrays to canonical ones and back, against loops over single values."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evoem.images import canonical_arrays

repeatable = settings(deadline=None, derandomize=True, max_examples=80)

DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "float64")
EXACT = ("bool", "uint8", "int8", "uint16", "int16")  # single precision holds them and their means
FLOATS = {"float16": 16, "float32": 32, "float64": 32}  # bits that are drawn


@st.composite
def images(draw, dtypes=DTYPES):
    """An image with 1 to 5 channels on any axis or none, and where they are."""
    axis = draw(st.sampled_from([None, 0, 1, 2, -1, -2, -3]))
    shape = [draw(st.integers(1, 5)), draw(st.integers(1, 5))]
    if axis is not None:
        shape.insert(axis if axis >= 0 else axis + 3, draw(st.integers(1, 5)))
    name = draw(st.sampled_from(dtypes))
    elements = None
    if name in FLOATS:
        elements = st.floats(-1000, 1000, width=FLOATS[name], allow_subnormal=False)
    return draw(hnp.arrays(name, tuple(shape), elements=elements)), axis


def draw_mask(data, image, axis):
    """None, a mask per pixel or per value, of booleans or integers."""
    per_pixel = np.moveaxis(image, axis, -1).shape[:2] if axis is not None else image.shape
    shape = data.draw(st.sampled_from([None, per_pixel, image.shape]))
    if shape is None:
        return None
    elements = st.sampled_from([0, 1, 7])
    dtype = data.draw(st.sampled_from(["bool", "uint8", "int64"]))
    return data.draw(hnp.arrays("int64", shape, elements=elements)).astype(dtype)


def slow_values(image, mask, axis, alpha):
    """{(row, column, channel): value, None where missing} and the alpha of each pixel."""
    values, alphas = {}, {}
    n_channels = 1 if axis is None else image.shape[axis]
    for place in np.ndindex(image.shape):
        pixel, channel = list(place), 0
        if axis is not None:
            channel = pixel.pop(axis)
        if alpha and n_channels == 4 and channel == 3:
            alphas[tuple(pixel)] = image[place]
            continue
        missing = mask is not None and bool(mask[place if mask.ndim == image.ndim else (*pixel,)])
        value = float(image[place])
        values[(*pixel, channel)] = None if missing or math.isnan(value) else value
    return values, alphas


def slow_round(value, dtype):
    """What an image of this type holds of a number."""
    if dtype.kind == "f":
        return dtype.type(value)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return dtype.type(min(max(round(value), low), high))  # halves to even, as NumPy does


def scaled(value, canonical):
    """A value as patches have it."""
    return np.float32((value - canonical.offset) / canonical.scale)


def some_seen(image, mask, axis, alpha):
    values, _ = slow_values(image, mask, axis, alpha)
    return any(value is not None for value in values.values())


# --------------------------------------------------------------------------------------- reading


@repeatable
@given(images(), st.booleans(), st.data())
def test_images_are_read_as_in_a_loop_over_values(case, alpha, data):
    image, axis = case
    mask = draw_mask(data, image, axis)
    assume(some_seen(image, mask, axis, alpha))
    canonical = canonical_arrays.read(image, mask, axis, alpha)
    values, alphas = slow_values(image, mask, axis, alpha)
    assert canonical.values.dtype == np.float32
    assert set(np.ndindex(canonical.values.shape)) == set(values)
    for place, value in values.items():
        got = canonical.values[place]
        assert got == (0 if value is None else scaled(value, canonical))
        if canonical.observed is not None:
            assert canonical.observed[place] == (value is not None)
    assert (canonical.observed is None) == (None not in values.values())
    assert (canonical.alpha is None) == (not alphas)
    for pixel, value in alphas.items():
        assert canonical.alpha[pixel] == value
    seen = {v for v in values.values() if v is not None}
    assert canonical_arrays.is_constant(canonical) == (len(seen) == 1)


@repeatable
@given(images(dtypes=("float32", "float64")), st.data())
def test_nan_is_missing_as_in_a_mask(case, data):
    image, axis = case
    mask = data.draw(hnp.arrays("bool", image.shape))
    assume(some_seen(image, mask, axis, True))
    masked = canonical_arrays.read(image, mask, axis, True)
    holed = canonical_arrays.read(np.where(mask, np.nan, image), None, axis, True)
    np.testing.assert_array_equal(holed.values, masked.values)
    if masked.observed is None:
        assert holed.observed is None
    else:
        np.testing.assert_array_equal(holed.observed, masked.observed)
    assert holed.offset == masked.offset


@repeatable
@given(
    hnp.arrays("float64", (4, 5), elements=st.floats(-1, 1, width=32, allow_subnormal=False)),
    st.floats(-1e6, 1e6),
)
def test_only_a_large_offset_is_taken_away_and_it_leaves_three_deviations(image, offset):
    moved = image + offset
    mean, deviation = moved.mean(), moved.std()
    assume(deviation > 1e-3)
    got = canonical_arrays.read(moved, None, None, True)
    if abs(mean) <= 10 * deviation:
        assert got.offset == 0
    else:
        left = got.values.mean(dtype=float)
        assert left == pytest.approx(np.sign(mean) * 3 * deviation, rel=1e-3)
    back = np.float64(got.values) + got.offset
    np.testing.assert_allclose(back[..., 0], moved, rtol=0, atol=1e-5)


# --------------------------------------------------------------------------------------- writing


@repeatable
@given(images(dtypes=EXACT), st.booleans(), st.booleans(), st.data())
def test_what_was_read_is_written_back_exactly(case, alpha, keep_observed, data):
    image, axis = case
    mask = draw_mask(data, image, axis)
    assume(some_seen(image, mask, axis, alpha))
    canonical = canonical_arrays.read(image, mask, axis, alpha)
    own = np.float64(image if axis is None else np.moveaxis(image, axis, -1))
    own = (own[..., None] if axis is None else own)[..., : canonical.values.shape[2]]
    filled = own - canonical.offset
    seen = True if canonical.observed is None else canonical.observed
    np.testing.assert_allclose(np.where(seen, canonical.values - filled, 0), 0, atol=4e-3)
    written = canonical_arrays.write(
        canonical, np.where(seen, canonical.values, filled), keep_observed
    )
    assert written.dtype == image.dtype
    np.testing.assert_array_equal(written, image)


@repeatable
@given(images(), st.booleans(), st.booleans(), st.data())
def test_images_are_written_as_in_a_loop_over_values(case, alpha, keep_observed, data):
    image, axis = case
    mask = draw_mask(data, image, axis)
    assume(some_seen(image, mask, axis, alpha))
    canonical = canonical_arrays.read(image, mask, axis, alpha)
    elements = st.floats(-60000, 60000, width=32, allow_subnormal=False)
    restored = data.draw(hnp.arrays("float64", canonical.values.shape, elements=elements))
    written = canonical_arrays.write(canonical, restored, keep_observed)
    assert written.dtype == image.dtype
    assert written.shape == image.shape
    values, alphas = slow_values(image, mask, axis, alpha)
    for place in np.ndindex(image.shape):
        pixel, channel = list(place), 0
        if axis is not None:
            channel = pixel.pop(axis)
        where = (*pixel, channel)
        if where not in values:
            expected = alphas[tuple(pixel)]
        elif keep_observed and values[where] is not None:
            expected = image[place]
        else:
            expected = slow_round(canonical.scale * restored[where] + canonical.offset, image.dtype)
        assert written[place] == expected


@repeatable
@given(images(dtypes=("uint8",)))
def test_layout_moves_channels_to_where_they_were(case):
    image, axis = case
    canonical = canonical_arrays.read(image, None, axis, alpha=False)
    own = canonical.scale * np.float64(canonical.values) + canonical.offset
    np.testing.assert_allclose(canonical_arrays.layout(canonical, own), image, rtol=0, atol=1e-4)


def test_reading_and_writing_leave_the_image_alone():
    image = np.arange(24, dtype=np.float64).reshape(4, 6)
    image.flags.writeable = False
    canonical = canonical_arrays.read(image, image > 20, None, True)
    written = canonical_arrays.write(canonical, np.zeros((4, 6, 1)), True)
    assert not np.shares_memory(written, image)
    np.testing.assert_array_equal(image.ravel(), np.arange(24))


def test_a_large_offset_costs_no_precision():
    image = 1e9 + np.arange(16.0).reshape(4, 4)
    canonical = canonical_arrays.read(image, None, None, True)
    np.testing.assert_allclose(
        canonical_arrays.write(canonical, np.float64(canonical.values), False),
        image,
        rtol=0,
        atol=1e-4,
    )


def test_large_integers_that_were_observed_stay_exact():
    image = np.array([[2**53 + 1, 2**63 + 3, 7]], np.uint64)
    canonical = canonical_arrays.read(image, np.array([[False, False, True]]), None, True)
    written = canonical_arrays.write(canonical, scaled(np.full((1, 3, 1), 5.0), canonical), True)
    assert written.tolist() == [[2**53 + 1, 2**63 + 3, 5]]


def test_restored_floats_stay_within_their_type():
    image = np.array([[-65500.0, 65500.0]], np.float16)
    canonical = canonical_arrays.read(image, None, None, True)
    written = canonical_arrays.write(canonical, 1.1 * canonical.values.astype(np.float64), False)
    np.testing.assert_array_equal(written, np.array([[-65504.0, 65504.0]], np.float16))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_restored_values_beyond_64_bits_are_clipped(dtype):
    image = np.array([[0, np.iinfo(dtype).max]], dtype)
    written = canonical_arrays.write(
        canonical_arrays.read(image, None, None, True), np.full((1, 2, 1), 1e20), False
    )
    assert (written >= np.iinfo(dtype).max - 2048).all()


@pytest.mark.parametrize(("n_channels", "keep_observed"), [(3, True), (4, False)])
def test_the_byte_order_is_kept(n_channels, keep_observed):
    image = np.arange(12 * n_channels).reshape(3, 4, n_channels).astype(">u2")
    canonical = canonical_arrays.read(image, None, -1, True)
    assert (
        canonical_arrays.write(canonical, np.float64(canonical.values), keep_observed).dtype
        == image.dtype
    )


def test_the_byte_order_of_a_denoised_image_is_kept():
    image = np.arange(12).reshape(3, 4).astype(">u2")
    canonical = canonical_arrays.read(image, None, None, True)
    written = canonical_arrays.write(canonical, np.float64(canonical.values), False)
    assert written.dtype == image.dtype
    np.testing.assert_array_equal(written, image)


@pytest.mark.parametrize("scale", [1e-50, 1e50])
def test_doubles_beyond_single_precision_are_read(scale):
    image = scale * np.array([[1.0, 2.0], [3.0, 5.0]])
    canonical = canonical_arrays.read(image, None, None, True)
    np.testing.assert_allclose(
        canonical_arrays.write(canonical, np.float64(canonical.values), False), image, rtol=1e-6
    )


# ----------------------------------------------------------------------------------------- wrong

GREY, COLOUR = np.eye(4), np.ones((4, 5, 3))


@pytest.mark.parametrize(
    ("image", "mask", "axis", "sentence"),
    [
        ([["a"]], None, None, r"image must hold real numbers; got <U1\."),
        (GREY * 1j, None, None, r"image must hold real numbers; got complex128\."),
        (GREY.astype(object), None, None, r"image must hold real numbers; got object\."),
        (GREY[0], None, None, r"image must be 2-D; got 1 dimensions\."),
        (5.0, None, None, r"image must be 2-D; got 0 dimensions\."),
        (COLOUR[None], None, None, r"image must be 2-D; got 4 dimensions\."),
        (
            COLOUR,
            None,
            None,
            r"image must be 2-D unless channel_axis says where its channels are; "
            r"got the shape \(4, 5, 3\)\.",
        ),
        (GREY, None, -1, r"image must be 3-D with a channel_axis; got 2 dimensions\."),
        (COLOUR[None], None, 1, r"image must be 3-D with a channel_axis; got 4 dimensions\."),
        (COLOUR, None, 3, r"channel_axis must be an integer between -3 and 2; got 3\."),
        (COLOUR, None, -4, r"channel_axis must be an integer between -3 and 2; got -4\."),
        (COLOUR, None, 1.0, r"channel_axis must be an integer between -3 and 2; got 1\.0\."),
        (COLOUR, None, True, r"channel_axis must be an integer between -3 and 2; got True\."),
        (GREY[:0], None, None, r"image must have pixels; got the shape \(0, 4\)\."),
        (COLOUR[..., :0], None, 2, r"image must have pixels; got the shape \(4, 5, 0\)\."),
        (GREY * np.nan, None, None, r"image must leave observed values; got all missing\."),
        (GREY, np.ones((4, 4), bool), None, r"mask must leave observed values; got all missing\."),
        (GREY, np.zeros((4, 4)), None, r"mask must be boolean or of integers; got float64\."),
        (GREY, [["a"]], None, r"mask must be boolean or of integers; got <U1\."),
        (
            GREY,
            np.zeros((4, 5), bool),
            None,
            r"mask must have the shape \(4, 4\) of the image; got \(4, 5\)\.",
        ),
        (
            GREY,
            np.zeros((4, 4, 1), bool),
            None,
            r"mask must have the shape \(4, 4\) of the image; got \(4, 4, 1\)\.",
        ),
        (
            COLOUR,
            np.zeros((5, 4), bool),
            2,
            r"mask must have the shape \(4, 5\) or \(4, 5, 3\) of the image; got \(5, 4\)\.",
        ),
        (
            COLOUR,
            np.zeros((3, 4, 5), bool),
            2,
            r"mask must have the shape \(4, 5\) or \(4, 5, 3\) of the image; got \(3, 4, 5\)\.",
        ),
        (np.where(GREY > 0, np.inf, 0.0), None, None, r"image must be finite or NaN; got inf\."),
        (np.where(GREY > 0, -np.inf, 0.0), None, None, r"image must be finite or NaN; got -inf\."),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(image, mask, axis, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        canonical_arrays.read(image, mask, axis, True)


def test_infinity_under_a_mask_is_no_matter():
    image = np.where(GREY > 0, np.inf, 3.0)
    canonical = canonical_arrays.read(image, GREY > 0, None, True)
    np.testing.assert_array_equal(canonical.values, 0)
    assert canonical.offset == 3
