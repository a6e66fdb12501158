"""The program as a whole: versions, exit codes, signals, and one sentence for an error."""

import io
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_line import SIZE, TINY, invoke, noisy, refused
from PIL import Image
from watched_models import watch

import evoem
from evoem.images import plan

LONGEST = 600  # seconds that a program may take, on a machine that others use too


def test_the_version_is_told():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"evoem {evoem.__version__}\n"


def test_a_run_beyond_the_memory_of_a_container_is_refused(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(plan, "available_memory", lambda: 300 << 20)
    said = refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png")
    assert "image needs 0.4 GB, 0.3 GB available: restore it in parts." in said


def test_libraries_print_nothing_beside_the_sentence(tmp_path, capfd):
    content = io.BytesIO()
    Image.fromarray(noisy((*SIZE, 3))).save(content, "TIFF", compression="tiff_lzw")
    codes = []
    for place in range(200, len(content.getvalue()), 100):
        damaged = bytearray(content.getvalue())
        damaged[place : place + 40] = b"\xff" * 40  # codes of LZW that were never defined
        (tmp_path / "in.tif").write_bytes(damaged)
        codes.append(invoke("noise", tmp_path / "in.tif").exit_code)
    assert codes.count(1) > len(codes) / 2
    assert capfd.readouterr().err == ""


def test_too_little_memory_is_a_sentence(tmp_path, picture, monkeypatch):
    def exhausted():
        raise MemoryError

    watch(monkeypatch, initialize=exhausted)
    assert "--memory" in refused(tmp_path, "denoise", picture, "-o", tmp_path / "out.png")


def test_wrong_usage_is_told_by_its_own_exit_code(tmp_path, picture):
    assert invoke("denoise", picture).exit_code == 2
    assert invoke("denoise", picture, "-o", tmp_path / "o.png", "--seed", "x").exit_code == 2
    assert invoke("sharpen", picture).exit_code == 2


def run_program(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)


def test_help_needs_no_numerical_packages():
    code = "import sys, evoem.cli; print('numpy' in sys.modules, 'numba' in sys.modules)"
    assert run_program("-c", code).stdout == "False False\n"


def test_the_program_fails_without_a_traceback(tmp_path):
    source = tmp_path / "none.png"
    result = run_program("-m", "evoem", "denoise", source, "-o", tmp_path / "out.png")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == f"evoem: {source} must be an existing file; found none.\n"


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_program_can_be_interrupted(tmp_path, picture, kind, code):
    target = tmp_path / "out.png"
    program = "from evoem import cli, screen; screen.SECONDS_BETWEEN_LINES = 0; cli.app()"
    arguments = (
        "denoise",
        picture,
        "-o",
        target,
        *TINY,
        "--max-iter",
        10**6,
        "--time-limit",
        LONGEST,
    )
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as run:
        assert any(line.startswith("iteration 1/1000000, ") for line in run.stderr)
        run.send_signal(kind)
        out, err = run.communicate(timeout=2 * LONGEST)
    assert run.returncode == code
    assert "Traceback" not in err
    assert "Interrupted: " in out
    assert "Interrupted: " in err
    assert np.array(Image.open(target)).shape == SIZE
    assert not list(tmp_path.glob(".evoem-*"))


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["import typer", "import numpy"])
def test_the_program_can_be_interrupted_while_it_is_imported(tmp_path, picture, kind, code, moment):
    # The signal comes when the package is looked for.
    program = f"""
import os, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == "{moment.split()[1]}":
            os.kill(os.getpid(), {int(kind)})
sys.meta_path.insert(0, Sender())
from evoem.__main__ import main
main()
"""
    result = run_program("-c", program, "denoise", picture, "-o", tmp_path / "out.png")
    assert result.returncode == code
    assert result.stderr == "evoem: interrupted before everything was written.\n"


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_program_can_be_interrupted_while_its_command_line_is_read(
    tmp_path, picture, kind, code
):
    program = f"""
import os
import typer.main
usual = typer.main.get_command
def interrupted(app):
    os.kill(os.getpid(), {int(kind)})
    return usual(app)
typer.main.get_command = interrupted
from evoem.__main__ import main
main()
"""
    result = run_program("-c", program, "denoise", picture, "-o", tmp_path / "out.png")
    assert result.returncode == code
    assert result.stderr == "evoem: interrupted before everything was written.\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_standard_output_is_told_in_one_sentence(tmp_path):
    np.save(tmp_path / "in.npy", np.random.default_rng(0).normal(100, 10, (64, 64)))
    command = [sys.executable, "-m", "evoem", "noise", tmp_path / "in.npy"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "evoem: the system did not go along: No space left on device.\n"
