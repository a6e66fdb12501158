"""Pictures to restore, and interrupts on the way."""

import numpy as np
import pytest
from command_line import SIZE, noisy, press_ctrl_c
from PIL import Image
from watched_models import at, watch


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "in.png"
    Image.fromarray(noisy()).save(path)
    return path


@pytest.fixture
def holes(tmp_path):
    mask = np.zeros(SIZE, np.uint8)
    mask[4:8, 5:9] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    return mask > 0


@pytest.fixture
def interrupt(monkeypatch):
    """Ctrl-C after so many iterations, counted over all slices."""

    def after(n_iterations):
        watch(monkeypatch, canonical=at([n_iterations], press_ctrl_c))  # the end of an M-step

    return after


@pytest.fixture
def nothing_is_learnt(monkeypatch):
    """No model is made."""

    def refuse():
        raise AssertionError

    watch(monkeypatch, make=refuse)
