"""What is written, and what is never written over."""

import os

import numpy as np
import pytest
import tifffile
from command_line import SAME, SIZE, TINY, invoke, noisy, refused
from PIL import Image

import evoem
from evoem import screen
from evoem.images.restore import restore


@pytest.mark.parametrize("name", ["std.tif", "std.npy", "std.png"])
def test_the_uncertainty_is_written(tmp_path, picture, name):
    arguments = "denoise", picture, "-o", tmp_path / "out.png", "--uncertainty", tmp_path / name
    assert invoke(*arguments, *TINY).exit_code == 0
    std = restore(noisy(), **SAME).std
    if name == "std.png":
        written = np.array(Image.open(tmp_path / name))
        assert written.dtype == np.uint8
        np.testing.assert_allclose(written, std * 255 / std.max(), atol=0.51)
    else:
        read = tifffile.imread if name == "std.tif" else np.load
        written = read(tmp_path / name)
        assert written.dtype == np.float32
        assert (written == std.astype(np.float32)).all()


def test_notes_are_said(tmp_path):
    np.save(tmp_path / "in.npy", np.full(SIZE, 7.0))
    result = invoke("denoise", tmp_path / "in.npy", "-o", tmp_path / "out.npy", *TINY)
    assert result.exit_code == 0
    assert result.stdout.endswith("converged\nThe image is constant: there was nothing to learn.\n")


def test_quiet_is_silent(tmp_path, picture, monkeypatch):
    monkeypatch.setattr(screen, "SECONDS_BETWEEN_LINES", 0)
    result = invoke("denoise", picture, "-o", tmp_path / "out.png", "--quiet", *TINY)
    assert result.exit_code == 0
    assert result.output == ""
    assert (tmp_path / "out.png").exists()


@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json", "--report"])
def test_existing_files_are_replaced_only_by_force(tmp_path, picture, option):
    existing = tmp_path / "there.png"
    existing.write_bytes(b"something")
    arguments = ["denoise", picture, option, existing]
    if option != "-o":
        arguments += ["-o", tmp_path / "out.png"]
    assert "must not exist yet unless force is given" in refused(tmp_path, *arguments)
    assert invoke(*arguments, *TINY, "--force").exit_code == 0
    assert existing.read_bytes() != b"something"


def test_two_outputs_are_two_files(tmp_path, picture):
    same = tmp_path / "out.png"
    said = refused(tmp_path, "denoise", picture, "-o", same, "--uncertainty", same, "--force")
    assert "must be the path of one output" in said


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json", "--report"])
def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path, picture, option):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    said = refused(tmp_path, "denoise", picture, *arguments, option, folder / "other.png")
    assert "must be a place that can be written to" in said


@pytest.mark.parametrize("option", ["-o", "--uncertainty", "--json", "--report"])
def test_outputs_lie_in_folders_that_exist(tmp_path, picture, option):
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    target = tmp_path / "none" / "other.png"
    said = refused(tmp_path, "denoise", picture, *arguments, option, target)
    assert "must be in an existing folder" in said


@pytest.mark.parametrize("option", ["-o", "--uncertainty"])
def test_an_unknown_format_is_an_error(tmp_path, picture, option):
    arguments = [] if option == "-o" else ["-o", tmp_path / "out.png"]
    said = refused(tmp_path, "denoise", picture, *arguments, option, tmp_path / "other.bmp")
    assert "must end in one of .png" in said


@pytest.mark.usefixtures("nothing_is_learnt")
def test_a_format_that_cannot_hold_the_picture_is_an_error(tmp_path):
    np.save(tmp_path / "in.npy", noisy(dtype=np.float32))
    said = refused(tmp_path, "denoise", tmp_path / "in.npy", "-o", tmp_path / "out.png")
    assert "float32" in said


@pytest.mark.parametrize("output", ["-o", "--json", "--uncertainty"])
@pytest.mark.parametrize(
    "read", ["picture", "--mask", "--reference", "--noise-variance", "--noise"]
)
@pytest.mark.parametrize("path", ["in", "linked", "around"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_read_is_never_written_over(tmp_path, picture, output, read, path, force):
    source = (
        picture if read == "picture" else tmp_path / ("n.json" if read == "--noise" else "b.npy")
    )
    if read == "--noise":
        evoem.Noise(read_variance=100.0).save(source)
    elif read != "picture":
        np.save(source, np.eye(*SIZE))
    (tmp_path / "linked").symlink_to(source)
    around = tmp_path / "." / source.name
    target = {"in": source, "linked": tmp_path / "linked", "around": around}[path]
    arguments = [] if output == "-o" else ["-o", tmp_path / "out.png"]
    given = [] if read == "picture" else [read, source]
    said = refused(tmp_path, "inpaint", picture, *given, *arguments, output, target, *force)
    assert said == f"evoem: {target} must not be written over: it is read.\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names there")
@pytest.mark.parametrize("output", ["-o", "--json", "--uncertainty"])
def test_only_files_are_replaced(tmp_path, picture, output):
    os.mkfifo(tmp_path / "pipe.tif")
    arguments = [] if output == "-o" else ["-o", tmp_path / "out.png"]
    arguments += [output, tmp_path / "pipe.tif", "--force"]
    assert "pipe.tif must be a file; got a pipe" in refused(
        tmp_path, "denoise", picture, *arguments
    )


@pytest.mark.parametrize("failing", ["--uncertainty", "--json"])
def test_all_outputs_are_written_or_none(tmp_path, picture, failing, monkeypatch):
    """The last move fails, as it does if somebody takes the folder away."""
    targets = {"-o": "out.png", "--uncertainty": "std.npy", "--json": "out.json"}
    (tmp_path / "out.png").write_bytes(b"before")
    link = os.link

    def refuse(source, target):
        if target.name == targets[failing]:
            raise PermissionError(13, "Permission denied")
        link(source, target)

    def refuse_too(source, target):
        if target.name == targets[failing]:
            raise PermissionError(13, "Permission denied")
        source.rename(target)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", refuse_too)
    arguments = [part for option, name in targets.items() for part in (option, tmp_path / name)]
    said = refused(tmp_path, "denoise", picture, *arguments, "--force")
    assert f"{targets[failing]} must be written in full; writing failed" in said
