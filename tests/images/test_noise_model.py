import json

import numpy as np
import pytest

from evoem.images.noise_model import Noise

KERNEL = np.outer([0.3, 1, 0.3], [0.2, 1, 0.2])
FULL = Noise(
    gain=(2.0, 1 / 3, 0.0),
    offset=(3.0, -0.1, 0.0),
    read_variance=(0.0, 1e-17, np.pi),
    correlation=KERNEL,
    channel_correlation=np.array([[1, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 1]]),
    cross_correlation=np.einsum("ab,ij->abij", np.eye(3) / 2 + 0.5, KERNEL),
    clipped=(None, 255.0),
    outliers=0.01,
    curve_signal=np.arange(6.0).reshape(3, 2),
    curve_variance=np.arange(6.0).reshape(3, 2) / 7,
    notes=("something could not be told",),
)


def test_it_is_shown_by_what_is_not_as_usual():
    assert repr(Noise()) == "Noise()"
    shown = repr(Noise(gain=2.0, correlation=KERNEL, outliers=0.1))
    assert shown == "Noise(gain=2.0, correlation=<3 x 3 array>, outliers=0.1)"


def test_variance_is_a_line_above_the_pedestal_and_read_noise_below():
    noise = Noise(gain=2, offset=3, read_variance=5)
    np.testing.assert_allclose(noise.variance([0, 3, 4, 13]), [5, 5, 7, 25])


def test_variance_takes_each_channel_by_its_own_law():
    np.testing.assert_allclose(FULL.variance([[4, 2.9, 7]]), [[2, 1, np.pi]])


def test_gain_and_correlation_make_the_kind():
    assert Noise(read_variance=1).kind == "gaussian"
    assert Noise(gain=1).kind == "poisson-gaussian"
    assert Noise(gain=(0, 1)).kind == "poisson-gaussian"
    assert Noise(correlation=KERNEL).kind == "correlated gaussian"
    assert Noise(cross_correlation=KERNEL[None, None]).kind == "correlated gaussian"
    assert FULL.with_correlation(None, None).kind == "poisson-gaussian"
    assert FULL.kind == "correlated poisson-gaussian"


def test_one_line_says_what_was_found():
    assert (
        Noise(gain=18.1, offset=3.3).describe()
        == "signal-dependent noise: gain 18.1, pedestal 3.3; neighbours independent"
    )
    said = FULL.describe()
    assert "\n" not in said
    for part in (
        "0.30 (columns)",
        "0.20 (rows)",
        "0.50, 0.10, 0.20",
        "above at 255",
        "outliers 1 %",
        FULL.notes[0],
    ):
        assert part in said
    assert "below" not in said
    assert "standard deviation 5" in Noise(read_variance=25).describe()
    untold = Noise(notes=("one value",), told=False)
    assert untold.describe() == "the noise could not be estimated; one value"


def test_noise_written_and_read_is_the_same_to_the_last_bit(tmp_path):
    FULL.save(tmp_path / "noise.json")
    again = Noise.load(tmp_path / "noise.json")
    assert again == FULL
    assert again.read_variance == FULL.read_variance
    np.testing.assert_array_equal(again.correlation, KERNEL)
    np.testing.assert_array_equal(again.cross_correlation, FULL.cross_correlation)
    assert again != Noise(gain=1)
    assert json.loads(Noise(gain=1).to_json())["gain"] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no", "noise must be a JSON object"),
        ("[1]", "noise must be a JSON object"),
        ('{"gian": 1}', "noise must have no keys but"),
        ('{"gain": -1}', "gain must be a number at least 0; got -1"),
        ('{"gain": "1"}', "gain must be a number"),
        ('{"gain": [1, null]}', "gain's entries must be a number"),
        ('{"gain": []}', "gain must have a number for each channel"),
        ('{"offset": NaN}', "offset must be a number"),
        ('{"correlation": [[1, 0.5]]}', "correlation must have odd numbers of lags"),
        ('{"correlation": [[0.5, 0.9, 0.5]]}', "correlation must be 1 at lag zero"),
        ('{"correlation": [[0.1, 1, 0.5]]}', "correlation must be the same at opposite lags"),
        ('{"correlation": [["a"]]}', "correlation must hold numbers"),
        ('{"channel_correlation": [[1, 2], [2, 1]]}', "channel_correlation must be positive"),
        ('{"channel_correlation": [[1, 0.5]]}', "channel_correlation must be a symmetric"),
        ('{"cross_correlation": [[[[1, 0]]]]}', "cross_correlation must be of pairs of channels"),
        ('{"cross_correlation": [[[[2]]]]}', "cross_correlation at lag zero must be positive"),
        ('{"cross_correlation": [[[[2, 1, 2]]]]}', "cross_correlation must be at most 1"),
        (
            '{"cross_correlation": [[[[0, 1, 1]]]]}',
            "cross_correlation must be the same at opposite",
        ),
        ('{"gain": [1, 2], "offset": [1, 2, 3]}', "noise must be of one number of channels"),
        ('{"clipped": [5, 5]}', "clipped must have its lowest level first"),
        ('{"clipped": 5}', "clipped must be a lowest and a highest level"),
        ('{"outliers": 2}', "outliers must be a number between 0 and 1"),
        ('{"curve_signal": [[1]], "curve_variance": [[1, 2]]}', "curve_variance must have"),
        ('{"notes": "a"}', "notes must be sentences"),
        ('{"told": 1}', "told must be True or False"),
        ('{"compressed": "no"}', "compressed must be True or False"),
    ],
)
def test_malformed_noise_is_refused_in_one_sentence(text, said):
    with pytest.raises(ValueError, match=f"^{said}") as refusal:
        Noise.from_json(text)
    assert str(refusal.value).endswith(".")


def test_scaled_noise_is_that_of_the_scaled_picture():
    scaled = FULL.scaled(10, 4)
    means = np.array([[11.0, 12, 13], [200, 0, 50]])
    np.testing.assert_allclose(scaled.variance((means - 10) / 4), FULL.variance(means) / 16)
    assert scaled.clipped == (None, (255 - 10) / 4)
    np.testing.assert_allclose(scaled.curve_signal, (FULL.curve_signal - 10) / 4)
    np.testing.assert_allclose(scaled.curve_variance, FULL.curve_variance / 16)
    np.testing.assert_array_equal(scaled.correlation, KERNEL)
    assert scaled.notes == FULL.notes
    assert scaled.offset == (-1.75, (-0.1 - 10) / 4, 0)
    assert Noise(read_variance=4).scaled(7, 2) == Noise(read_variance=1)
    with pytest.raises(ValueError, match="scale must be positive; got 0"):
        FULL.scaled(0, 0)


def test_arrays_of_a_noise_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        FULL.correlation[0, 0] = 1
