"""`evoem noise`."""

import numpy as np
import pytest
from command_line import invoke
from PIL import Image

import evoem
from evoem.images import canonical_arrays, noise_stage
from evoem.images.noise_estimation import estimate


def test_noise_is_told_in_one_line_and_kept_with_curve_and_autocorrelation(tmp_path):
    rng = np.random.default_rng(0)
    smooth = 100 + 50 * np.sin(np.add.outer(np.arange(128), np.arange(128)) / 20)
    np.save(tmp_path / "in.npy", rng.poisson(smooth).astype(float))
    told, plot = tmp_path / "noise.json", tmp_path / "noise.png"
    result = invoke("noise", tmp_path / "in.npy", "--json", told, "--plot", plot)
    assert result.exit_code == 0
    noise = evoem.Noise.load(told)
    assert result.output == noise.describe() + "\n"
    assert result.output.startswith("signal-dependent noise: gain ")
    assert noise.gain == pytest.approx(1, rel=0.1)
    assert np.median(noise.curve_variance / noise.curve_signal) == pytest.approx(1, rel=0.1)
    middle = len(noise.measured_correlation) // 2
    assert noise.measured_correlation[middle, middle] == pytest.approx(1)
    assert abs(noise.measured_correlation[middle, middle + 1]) < 0.15
    assert np.ptp(np.asarray(Image.open(plot).convert("L"))) > 200  # something is drawn


def test_noise_that_cannot_be_told_is_said_and_drawn_too(tmp_path):
    np.save(tmp_path / "in.npy", np.full((64, 64), 7.0))
    result = invoke("noise", tmp_path / "in.npy", "--plot", tmp_path / "noise.svg")
    assert result.output == "the noise could not be estimated; the picture is constant\n"
    assert "<svg" in (tmp_path / "noise.svg").read_text()


def test_of_a_large_picture_the_same_tiles_are_looked_at_as_for_restoring_it(tmp_path, monkeypatch):
    monkeypatch.setattr(noise_stage, "LARGEST", 128**2)
    monkeypatch.setattr(noise_stage, "TILE", 64)
    x = np.linspace(0, 20, 256)
    picture = 20 * np.sin(np.add.outer(x, x)) + np.random.default_rng(0).normal(0, 4, (256, 256))
    np.save(tmp_path / "in.npy", picture)
    told = tmp_path / "noise.json"
    assert invoke("noise", tmp_path / "in.npy", "--json", told).exit_code == 0
    whole = canonical_arrays.read(picture, None, None, False)
    assert evoem.Noise.load(told) == noise_stage.find(whole, "auto").noise
    assert evoem.Noise.load(told) != estimate(picture[..., None])[0]


def test_a_plot_is_of_a_known_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.random.default_rng(0).normal(100, 10, (64, 64)))
    result = invoke("noise", "in.npy", "--json", "noise.json", "--plot", "noise.xyz")
    assert result.exit_code == 1
    assert result.stderr.startswith("evoem: plot must end in one of .png, .svg, .pdf, ")
    assert result.stderr.endswith("; got '.xyz'.\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy"]


def test_noise_is_told_without_any_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.random.default_rng(0).normal(100, 10, (64, 64)))
    result = invoke("noise", "in.npy")
    assert result.exit_code == 0
    assert result.output.startswith("uniform noise: standard deviation ")
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]
