"""Mosaics pixel by pixel, and files that are the same whenever they are made."""

import sys
import time

import numpy as np
import pytest

from evoem.reproduction import figures
from evoem.reproduction.figures import as_bytes, dictionary, mosaic, need_matplotlib


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize(("n", "columns"), [(1, 1), (5, 3), (6, 3), (4, 9)])
def test_each_field_has_its_place_between_lines(n, columns, alike, channels):
    fields = np.random.default_rng(n).normal(size=(n, 4, 3, *channels))
    fields[0] = 0.0
    found = mosaic(fields, columns, alike=alike)
    rows = -(-n // columns)
    expected = np.full((5 * rows + 1, 4 * columns + 1), np.nan)
    for number, field in enumerate(fields):
        grey = field.mean(-1) if channels else field
        if not alike and number > 0:
            grey = grey / np.abs(grey).max()
        row, column = divmod(number, columns)
        for i, j in np.ndindex(4, 3):
            expected[1 + 5 * row + i, 1 + 4 * column + j] = grey[i, j]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", figures.FORMATS)
def test_a_file_does_not_depend_on_the_time(kind):
    pytest.importorskip("matplotlib")
    fields = np.random.default_rng(0).normal(size=(5, 4, 4))

    def drawn():
        return as_bytes(dictionary(fields, "five fields"), kind)

    first = drawn()
    time.sleep(1.1)  # PDF counts seconds
    assert drawn() == first


def test_what_it_needs_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"^reproduce needs matplotlib: "):
        need_matplotlib()
