"""The commands in the documents and in the help: each is run, small, or at least understood.

Those that restore or look at a picture are run, on small ones of the names that they have. Of those
that take hours, or serve a page, all options are read. Of scripts, `make` and `pip` there is what
is asked for. Commands of other programs are those of a list.
"""

import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import TINY, invoke, noisy
from PIL import Image

from evoem import cli
from evoem.cli.restoring import DENOISE_EXAMPLES, INPAINT_EXAMPLES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
HELP = typer.main.get_command(cli.app)

OURS = ("evoem", "python", "make", "pip", "mpiexec", "pipx", "uv")
# Programs of others that the documents name, and nobody runs here.
OTHERS = ("conda", "module", "srun")
# Blocks of trees of folders and listings, which begin with such words too.
BLOCK = re.compile(r"(?:^    .*\S.*\n)+|^```bash\n(?:.*\n)*?```$", re.MULTILINE)
INLINE = re.compile(r"`((?:evoem|make|pipx|uv) [^`\n]+)`")
# Behind a command stand a comment or, apart, what it is for.
AFTER = re.compile(r"(?:^|\s)#.*|\s{2,}.*")


def lines_of(text):
    """The lines of blocks and code between words, without what is said of them."""
    for block in BLOCK.findall(re.sub(r"^```(?!bash)\w*\n(?:.*\n)*?```$", "", text, flags=re.M)):
        yield from re.sub(r"\s*\\\n\s*", " ", block).splitlines()
    yield from INLINE.findall(text)


def commands_in(text):
    """Commands, split into words."""
    found = []
    for line in lines_of(text):
        for one in AFTER.sub("", line.strip()).split(" && "):
            if one.split(" ")[0] in OURS + OTHERS:
                found.append(tuple(shlex.split(one)))
    return found


def said(command):
    return " ".join(command)


def all_commands():
    """Each once, with a place where it stands."""
    found = {}
    for page in PAGES:
        for command in commands_in(page.read_text("utf-8")):
            found.setdefault(command, page.name)
    for example in (DENOISE_EXAMPLES + INPAINT_EXAMPLES).splitlines():
        if example.strip().startswith("evoem"):
            found.setdefault(tuple(shlex.split(example)), "help")
    return found


COMMANDS = all_commands()
RUN = [
    command
    for command in COMMANDS
    if command[1:2] and command[1] in ("denoise", "inpaint", "noise") and "." in said(command)
]


def of(program):
    return [command[1:] for command in COMMANDS if command[0] == program]


def test_commands_are_found_with_their_options_and_without_what_is_said_of_them():
    text = (
        "Say\n\n    evoem noise 'a b.png'   # a comment\n    make this     what it is for\n"
        "    python a.py --x 1 \\\n        --y\n\nor `evoem demo -o b.png`, in\n\n"
        "```bash\nsrun it && pip install '.[ui]'\n```\n\n    evoem/   a folder\n"
    )
    assert commands_in(text) == [
        ("evoem", "noise", "a b.png"),
        ("make", "this"),
        ("python", "a.py", "--x", "1", "--y"),
        ("srun", "it"),
        ("pip", "install", ".[ui]"),
        ("evoem", "demo", "-o", "b.png"),
    ]
    assert len(RUN) >= 10


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder with small pictures of all names, and masks."""
    monkeypatch.chdir(tmp_path)
    mask = np.zeros(noisy().shape, np.uint8)
    mask[4:8, 5:9] = 255
    names = {word for command in RUN for word in command if "." in word}
    for name in names:
        if name.startswith("scratches"):
            Image.fromarray(mask).save(name)
        elif Path(name).suffix in (".png", ".jpg", ".tif"):
            Image.fromarray(noisy() if "pepper" not in name else np.maximum(noisy(), mask)).save(
                name
            )
    return tmp_path


@pytest.mark.parametrize("command", RUN, ids=said)
def test_a_command_on_a_picture_runs(pictures, command):
    arguments = list(command[1:])
    if any("$" in word for word in arguments):  # of a shell, in a script of a queue
        assert_understood(arguments)
        return
    if arguments[0] != "noise":
        arguments += [*TINY, "--force"]
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output


def assert_understood(arguments):
    """All of a command's options exist; and none is lacking, unless it is but mentioned."""
    name, *rest = arguments
    command = HELP.commands.get(name, HELP)
    options = [word for word in arguments if word.startswith("-")]
    if any(word not in options for word in rest):
        with command.make_context(name, rest):
            return
    known = {one for parameter in command.params for one in parameter.opts} | {"--help"}
    assert set(options) <= known
    assert command is not HELP or name in known


@pytest.mark.parametrize(
    "arguments", [words for words in of("evoem") if ("evoem", *words) not in RUN], ids=said
)
def test_a_command_that_takes_long_is_understood(arguments):
    assert_understood(arguments)


@pytest.mark.parametrize("arguments", of("mpiexec"), ids=said)
def test_a_command_of_several_processes_is_understood(arguments):
    words = list(arguments)
    if "evoem" in words:
        assert_understood(words[words.index("evoem") + 1 :])
    else:
        assert words[-2] == "python"


@pytest.mark.parametrize("arguments", of("python"), ids=said)
def test_a_script_has_the_options_that_are_given(arguments):
    script, *rest = arguments
    if script == "fit.py":  # the reader's own
        return
    text = (ROOT / script).read_text("utf-8")
    for option in (word for word in rest if word.startswith("--")):
        assert f'"{option.replace("--no-", "--")}"' in text, option


@pytest.mark.parametrize("arguments", of("make"), ids=said)
def test_make_has_the_target(arguments):
    assert [word for word in arguments if "=" not in word and word not in TARGETS] == []


@pytest.mark.parametrize("arguments", [*of("pip"), *of("pipx"), *of("uv")], ids=said)
def test_what_is_installed_has_the_extras_that_are_named(arguments):
    assert "install" in arguments
    for word in arguments:
        extras = re.fullmatch(r"(?:\.|evoem)\[(.+)\]", word)
        if extras:
            assert set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()
