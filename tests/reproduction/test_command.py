"""What the command says, and what it hands on."""

import pytest

from evoem.reproduction import command, recipes

GIVEN = {
    "size": "quick", "only": (), "updates": None, "images": None, "out": None, "seed": 0,
    "n_jobs": 1, "tell": print,
}  # fmt: skip


def test_the_experiments_are_listed_with_what_they_show():
    text = command.listing()
    for name in recipes.NAMES:
        assert f"{name}: " in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"n_jobs": 0}, "n_jobs must be "),
        ({"updates": "new"}, "updates must be one of "),
        ({"only": ["ica"]}, "only must be one of "),
        ({"size": "full"}, "images must hold house"),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_folder_is_made(given, sentence, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=f"^{sentence}"):
        command.reproduce("bound-and-psnr", **GIVEN | {"out": out} | given)
    assert not out.exists()
