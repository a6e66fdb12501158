"""Help fits a screen, and nothing is kept from who wants all."""

import pytest
from command_line import invoke

from evoem.cli.help import ADVANCED, Command, panel_of
from evoem.cli.options import UNASKED
from evoem.images.options import OPTIONS

LINES_OF_A_SCREEN = 44
FOR_EVERYBODY = {
    "denoise": ["--output", "--preset", "--time-limit", "--noise", "--uncertainty"],
    "inpaint": ["--mask", "--mask-grow", "--propose-mask"],
}
FOR_EVERYBODY["inpaint"] += FOR_EVERYBODY["denoise"]


def shown(command, option="--help"):
    result = invoke(command, option)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("command", FOR_EVERYBODY)
def test_help_fits_a_screen_and_ends_with_examples(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(command)
    assert len(text.splitlines()) <= LINES_OF_A_SCREEN
    assert all(name in text for name in FOR_EVERYBODY[command])
    assert ADVANCED not in text
    assert "--n-parents" not in text
    *_, examples = text.partition("Examples:")
    assert examples.count(f"evoem {command} ") == 3


@pytest.mark.parametrize("command", FOR_EVERYBODY)
def test_all_options_are_shown_if_asked_for(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = shown(command, "--help-all")
    assert ADVANCED in text
    for name in OPTIONS.keys() - set(UNASKED):
        assert f"--{name.replace('_', '-')}" in text
    assert "--mask-value" in text
    assert "--help-all" in shown(command)  # the next help is short again
    assert ADVANCED not in shown(command)


def test_hidden_options_are_only_hidden_from_help():
    from typer.main import get_command

    from evoem.cli import app

    command = get_command(app).commands["denoise"]
    assert isinstance(command, Command)
    shown("denoise")
    advanced = [one for one in command.params if panel_of(one) == ADVANCED]
    assert len(advanced) > 20
    assert not any(one.hidden for one in command.params)


def test_shells_can_be_told_to_complete():
    assert "--install-completion" in invoke("--help").stdout
