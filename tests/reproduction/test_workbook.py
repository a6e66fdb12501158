"""Parts are kept with their time, however attempts at them end."""

import time

import numpy as np
import pytest

from evoem.reproduction.recipes import Recipe, Row
from evoem.reproduction.workbook import Outcome, Workbook

PARTS = Recipe("sums", "full", "", "", "", "", (Row("a", {"repeats": 2}),)).parts(0)


def test_what_came_of_a_part_is_kept_and_what_it_was_to_go_on_from_is_not(tmp_path):
    book, (part, other) = Workbook(tmp_path), PARTS
    book.checkpoint(part).write_bytes(b"states")
    book.note(part, [{"iteration": 3, "bound": -1.5}])
    assert Workbook(tmp_path).records(part) == [{"iteration": 3, "bound": -1.5}]
    outcome = Outcome({"bound": -1.25, "name": "ä"}, {"W": np.eye(3, dtype=np.float32)})
    assert book.outcome(part) is None
    book.finish(part, outcome)
    found = Workbook(tmp_path).outcome(part)
    assert found.values == outcome.values
    assert found.arrays["W"].dtype == np.float32
    np.testing.assert_array_equal(found.arrays["W"], np.eye(3))
    assert not book.checkpoint(part).exists()
    assert book.records(part) == []
    assert book.outcome(other) is None


def test_the_time_of_all_attempts_is_added_up_also_of_those_that_fail(tmp_path):
    book, (part, other) = Workbook(tmp_path), PARTS
    assert book.spent(part) == (0, 0)
    with book.timed(part):
        time.sleep(0.02)
    first = book.spent(part)
    with pytest.raises(KeyError), book.timed(part):
        raise KeyError(time.sleep(0.03))
    second = Workbook(tmp_path).spent(part)
    assert first.seconds >= 0.02
    assert second.seconds >= first.seconds + 0.03
    assert second.core_seconds >= first.core_seconds
    assert book.spent(other) == (0, 0)
    book.finish(part, Outcome({}, {}))
    assert book.outcome(part)[2:] == second


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^out must be a folder that can be written to; got "):
        Workbook(tmp_path / "file" / "out")
