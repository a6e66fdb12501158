"""`evoem demo`."""

import sys

import numpy as np
import pytest
from command_line import invoke
from PIL import Image

from evoem.cli.demo import DEMO_NOISE, DEMO_SIDE, demonstrate

GIVEN = {"max_iter": 2, "seed": 0, "n_jobs": 1, "preset": "fast"}


def test_three_pictures_are_written_side_by_side(tmp_path, capsys):
    data = pytest.importorskip("skimage.data")
    target = tmp_path / "demo.png"
    demonstrate(32, target, False, False, GIVEN)
    assert "PSNR from 20." in capsys.readouterr().out
    clean, noisy, restored = np.hsplit(np.asarray(Image.open(target), float), 3)
    blocks = data.camera().reshape(32, 16, 32, 16).mean((1, 3))
    np.testing.assert_allclose(clean, blocks, atol=0.5)
    assert np.std(noisy - clean) == pytest.approx(DEMO_NOISE, rel=0.1)
    assert np.std(restored - clean) < 0.8 * np.std(noisy - clean)
    with pytest.raises(ValueError, match="unless force is given"):
        demonstrate(32, target, False, True, GIVEN)
    assert len(data.camera()) % DEMO_SIDE == 0


def test_what_it_needs_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    result = invoke("demo", "-o", tmp_path / "demo.png")
    assert result.exit_code == 1
    assert result.stderr == "evoem: demo needs scikit-image: pip install 'evoem[demo]'.\n"
