"""`evoem reproduce`."""

import json

import pytest
from command_line import invoke


def test_experiments_of_the_paper_are_listed_and_repeated(tmp_path):
    listed = invoke("reproduce")
    assert listed.exit_code == 0
    assert "bars-reliability: " in listed.stdout
    folder, small = tmp_path / "out", ("--only", "noisy-or", "--n-jobs", 1, "--seed", 3)
    result = invoke("reproduce", "bars", "-o", folder, "--updates", "monotone", *small)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].startswith("Reduced: ")
    assert "1 of 1: noisy-or-1" in result.stdout
    settings = json.loads((folder / "settings.json").read_text())
    assert (settings["seed"], settings["size"]) == (3, "quick")
    assert settings["rows"]["noisy-or"]["options"]["updates"] == "monotone"
    again = invoke("reproduce", "bars", "-o", folder, "--updates", "monotone", *small)
    assert "noisy-or-1 is finished." in again.stdout


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("bar",), "name must be one of 'bars', "),
        (("bars", "--only", "ica"), "only must be one of 'noisy-or', 'bsc', 'sssc'; got 'ica'."),
        (
            ("bars", "--updates", "new"),
            "updates must be one of 'monotone', 'printed', 'authors'; got 'new'.",
        ),
        (("bars", "--quick", "--full"), "quick must not be given with full; got both."),
        (("bound-and-psnr", "--full"), "images must hold house, 256 x 256 grey; got no folder. "),
    ],
)
def test_what_cannot_be_repeated_is_an_error(tmp_path, given, sentence):
    result = invoke("reproduce", *given, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"evoem: {sentence}")
