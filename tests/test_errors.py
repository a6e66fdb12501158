"""What can be wrong with a model, told in the user's terms."""

import pickle

import pytest

from evoem.errors import LogJointError, MissingExtra, numbered_rows


def test_an_error_about_a_row_names_its_number_among_all():
    with pytest.raises(LogJointError) as caught, numbered_rows(range(100, 200)):
        raise LogJointError("it must be finite; got nan", 7, [0, 3])
    assert str(caught.value) == (
        "it must be finite; got nan, for row 107 and the state of active latents [0, 3]."
    )
    with pytest.raises(LogJointError) as again, numbered_rows([5, 6]), numbered_rows([1]):
        raise LogJointError("", 0, [])
    assert again.value.row == 6


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), numbered_rows([1]):
        raise ZeroDivisionError


def test_errors_come_back_from_other_processes():
    error = pickle.loads(pickle.dumps(LogJointError("it must be finite", 3, [1])))
    assert (error.reason, error.row, error.active) == ("it must be finite", 3, [1])


def test_a_missing_package_is_told_with_what_brings_it():
    sentence = "torch must be installed for this: pip install 'evoem[torch]'; it is not."
    assert str(MissingExtra("torch", "torch")) == sentence
