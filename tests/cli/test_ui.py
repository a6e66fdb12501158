"""`evoem ui`."""

import sys

from command_line import invoke


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "evoem.ui.server", raising=False)
    result = invoke("ui", "--no-browser")
    assert result.exit_code == 1
    assert result.stderr == "evoem: ui needs starlette and uvicorn: pip install 'evoem[ui]'.\n"


def test_a_port_is_a_number_of_a_port():
    result = invoke("ui", "--port", "70000")
    assert result.exit_code == 2
