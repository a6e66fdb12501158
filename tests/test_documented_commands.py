"""The commands in the documents can be given as they stand, and those on pictures run."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tifffile
import typer
from PIL import Image
from typer.testing import CliRunner

from evoem import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A run of a small picture takes no time with these, which come after those of the documents.
TINY = ["--preset", "fast", "--start", "mean", "--n-parts", "1", "--max-iter", "2", "--n-jobs", "1"]
RUN = ("denoise", "inpaint", "noise")
# Options whose values are files that have to be there.
GIVEN = ("--mask", "--reference", "--noise-variance")


def commands_of(page):
    """Blocks of commands, each a list of words; what stands behind a gap explains a command."""
    text = re.sub(r"\\\n\s*", " ", page.read_text("utf-8"))
    for block in re.findall(r"(?:^    \S.*\n?)+", text, re.MULTILINE):
        lines = [line.strip() for line in block.splitlines()]
        found = [shlex.split(re.sub(r"(?<=\S)\s{3,}.*", "", line), comments=True) for line in lines
                 if re.match(r"(evoem|mpiexec|make|python)\b", line)]  # fmt: skip
        if found:
            yield found
    for inline in re.findall(r"(?<!`)`(evoem (?:denoise|inpaint|noise) [^`\s]*\.[^`]*)`", text):
        yield [shlex.split(inline)]


def named(kind):
    """All blocks with a command of a kind, each with its page."""
    found = []
    for page in PAGES:
        for block in commands_of(page):
            own = [words[words.index(kind) :] for words in block if kind in words]
            if own:
                found.append(pytest.param(own, id=f"{page.stem}: {' '.join(own[0])[:60]}"))
    return found


def parsed(words):
    """Fails unless the command line takes these words."""
    group = typer.main.get_command(cli.app)
    if words[0].startswith("--"):
        assert CliRunner().invoke(cli.app, words).exit_code == 0
        return
    group.commands[words[0]].make_context(words[0], list(words[1:]))


def draw(path, marks):
    """A small picture: marks, or steps with noise."""
    rng = np.random.default_rng(0)
    picture = 100 + 40 * np.sin(np.add.outer(np.arange(40), np.arange(36)) / 8)
    picture = 0 * picture if marks else picture + rng.normal(0, 5, picture.shape)
    picture[3, 4], picture[10, 2:30] = 1, 255  # a speck and a scratch
    picture = picture.astype(np.uint8)
    if path.suffix == ".tif":
        tifffile.imwrite(path, picture)
    else:
        Image.fromarray(picture).save(path)


@pytest.mark.parametrize("block", named("evoem"))
def test_commands_are_taken_and_those_on_pictures_run(block, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    written = set()
    for _, *words in block:
        if words and "$" not in " ".join(words):
            parsed(words)
        if words[:1] not in [[name] for name in RUN]:
            continue
        given = {words[1]: False} | {
            value: option == "--mask" for option, value in pairwise(words) if option in GIVEN
        }
        for name, marks in given.items():
            if not Path(name).exists():
                draw(Path(name), marks)
        if "--resume" in words:  # the run before did not come to its end
            for path in written:
                path.unlink()
        own = TINY if words[0] != "noise" and "--propose-mask" not in words else []
        result = CliRunner().invoke(cli.app, [*words, *own])
        assert result.exit_code == 0, result.stderr
        written = {
            Path(value)
            for option, value in pairwise(words)
            if option in ("-o", "--output", "--report", "--uncertainty", "--propose-mask")
        }
        assert all(path.stat().st_size for path in written)


@pytest.mark.parametrize("block", named("make"))
def test_targets_are_there(block):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert [words[1] for words in block if words[1] not in targets] == []


def scripts():
    """Scripts of the project that documents name, with the options they give."""
    found = {}
    for page in PAGES:
        for block in commands_of(page):
            for words in block:
                if words[0] == "python" and "/" in words[1]:
                    own = {word for word in words[2:] if word.startswith("--")}
                    found.setdefault(words[1], set()).update(own)
    return sorted(found.items())


@pytest.mark.parametrize(("script", "options"), scripts(), ids=lambda value: str(value)[:40])
def test_scripts_are_there_and_have_the_options(script, options):
    told = subprocess.run(
        [sys.executable, ROOT / script, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert [option for option in options if not re.search(rf"{option}\b", told)] == []


def test_commands_are_found_as_they_are_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text `evoem noise` and `evoem noise a.tif`:\n\n"
        "    evoem denoise a.png \\\n        -o b.png\n"
        "    evoem demo        # a photograph\n    make test         lint\n\n    x = 1\n"
    )
    assert list(commands_of(page)) == [
        [["evoem", "denoise", "a.png", "-o", "b.png"], ["evoem", "demo"], ["make", "test"]],
        [["evoem", "noise", "a.tif"]],
    ]


def test_an_option_that_is_not_there_is_noticed():
    parsed(["denoise", "a.png", "-o", "b.png", "--preset", "best"])
    with pytest.raises(Exception, match="No such option"):
        parsed(["denoise", "a.png", "-o", "b.png", "--presets", "best"])
