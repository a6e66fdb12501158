"""Files are written whole or not at all, and what killed processes leave goes away."""

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from evoem.runtime.atomic_files import (
    FileError,
    FolderWrite,
    check_place,
    file_beside,
    replace_whole,
    write_together,
    write_whole,
)

POSIX = pytest.mark.skipif(os.name != "posix", reason="locks of files are of POSIX")


def left(folder):
    return sorted(entry.name for entry in folder.iterdir())


@POSIX
def test_what_a_killed_process_left_is_replaced(tmp_path):
    target = tmp_path / "picture"
    program = (
        "import os, pathlib, sys\n"
        "from evoem.runtime.atomic_files import replace_whole\n"
        "replace_whole(pathlib.Path(sys.argv[1]), lambda file: os._exit(1))\n"
    )  # no more is done than if it were killed
    killed = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert killed.returncode == 1
    (name,) = left(tmp_path)
    assert name.startswith(".evoem-")
    assert name.endswith(".tmp")
    replace_whole(target, lambda file: file.write(b"all of it"))
    assert left(tmp_path) == ["picture"]
    assert target.read_bytes() == b"all of it"


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_an_error_while_writing_leaves_what_was_there(tmp_path, error):
    target = tmp_path / "picture"
    target.write_bytes(b"before")

    def fail(file):
        file.write(b"half")
        raise error

    with pytest.raises((FileError, KeyboardInterrupt)):
        write_whole(target, fail, force=True)
    assert left(tmp_path) == ["picture"]
    assert target.read_bytes() == b"before"


# In a process of its own: the limit holds for whatever file the test runner writes to as well.
WITHOUT_ROOM = """
import pathlib, resource, sys
from evoem.runtime.atomic_files import FileError, write_together
folder, size = pathlib.Path(sys.argv[1]), int(sys.argv[2])
outputs = {folder / name: lambda file: file.write(bytes(size)) for name in ("one", "two")}
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    write_together(outputs, force=True)
except FileError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.parametrize("size", [10, 1_000_000])  # less than a buffer, and more
def test_a_full_disk_is_told_in_one_sentence(tmp_path, size):
    pytest.importorskip("resource")
    program = [sys.executable, "-c", WITHOUT_ROOM, str(tmp_path), str(size)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert f"one must be written in full; writing failed: [Errno {errno.EFBIG}] " in done.stdout
    assert left(tmp_path) == []


@POSIX
@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_will_do(tmp_path, monkeypatch, error):
    sync = os.fsync

    def of_files(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(error, os.strerror(error))
        sync(opened)

    monkeypatch.setattr(os, "fsync", of_files)
    write_whole(tmp_path / "one", writing(b"1"), force=False)
    replace_whole(tmp_path / "one", writing(b"2"))
    assert (tmp_path / "one").read_bytes() == b"2"


@POSIX
def test_who_writes_the_same_file_waits(tmp_path):
    """Eight threads, as eight processes would: what is there in the end is whole."""
    target, together = tmp_path / "picture", threading.Barrier(8, timeout=600)

    def write(number):
        content = bytes([number]) * 100_000
        together.wait()
        for _ in range(20):
            replace_whole(target, lambda file: [file.write(content[:1000]) for _ in range(100)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if target.exists():
            seen = target.read_bytes()
            assert len(seen) == 100_000
            assert len(set(seen)) == 1
    assert left(tmp_path) == ["picture"]


def test_a_replaced_file_keeps_its_permissions_and_a_new_one_has_the_usual(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    old.chmod(0o640)
    plain = tmp_path / "plain"
    plain.touch()
    for path in (old, new):
        replace_whole(path, lambda file: file.write(b"1"))
    assert old.stat().st_mode & 0o777 == 0o640
    assert new.stat().st_mode == plain.stat().st_mode


def test_the_name_of_a_file_may_be_as_long_as_names_may_be(tmp_path):
    path = tmp_path / ("n" * 255)
    with file_beside(path) as (_, file):
        file.write(b"1")
    assert path.read_bytes() == b"1"


def contents(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def writing(content):
    return lambda file: file.write(content)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_several_files_are_written_or_none(tmp_path, failing, error):
    """The disk is full, or somebody loses patience, at the first, second or third."""
    (tmp_path / "0").write_bytes(b"before")
    before = contents(tmp_path)

    def fail(file):
        file.write(b"half")
        raise error

    outputs = {tmp_path / str(number): writing(b"after") for number in range(3)}
    with pytest.raises((FileError, KeyboardInterrupt)):
        write_together(outputs | {tmp_path / str(failing): fail}, force=True)
    assert contents(tmp_path) == before
    write_together(outputs, force=True)
    assert contents(tmp_path) == dict.fromkeys("012", b"after")


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_was_moved_is_moved_back(tmp_path, failing, monkeypatch):
    for number in (0, 2):
        (tmp_path / str(number)).write_bytes(b"before")
    before, replace = contents(tmp_path), os.replace

    def refuse(source, target):
        if target.name == str(failing) and source.read_bytes() == b"after":
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "link", refuse_links)
    outputs = {tmp_path / str(number): writing(b"after") for number in range(3)}
    with pytest.raises(FileError, match=r"must be written in full; writing failed: .*Permission"):
        write_together(outputs, force=True)
    assert contents(tmp_path) == before


def test_nothing_to_write_is_no_error(tmp_path):
    write_together({}, force=False)
    assert left(tmp_path) == []


def refuse_links(source, target):
    """A file system that knows none."""
    raise OSError(95, "Operation not supported")


@POSIX
def test_of_two_processes_without_force_one_writes(tmp_path):
    """Both have found the place free; the other says that it no longer is."""
    target = tmp_path / "picture"
    said = []

    def write_too():
        try:
            write_whole(target, writing(b"second"), force=False)
        except FileError as error:
            said.append(str(error))

    def first(file):
        other.start()
        file.write(b"first")

    other = threading.Thread(target=write_too)
    write_whole(target, first, force=False)
    other.join()
    assert target.read_bytes() == b"first"
    assert "must not exist yet unless force is given" in said[0]
    assert left(tmp_path) == ["picture"]


@POSIX
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_told_and_changes_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "a").write_bytes(b"before")
        outputs = {disk / "a": writing(b"after"), disk / "b": writing(bytes(100_000))}
        with pytest.raises(FileError, match=r"b must be written in full; .*No space left"):
            write_together(outputs, force=True)
        assert contents(disk) == {"a": b"before"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# ------------------------------------------------------------------------------------- folders


def filling(content):
    """What writes a folder with a file in a folder."""

    def fill(folder):
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_bytes(content)

    return FolderWrite(fill, lambda folder: (folder / "inner").is_dir())


def all_files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_folder_is_written_whole_or_not_at_all(tmp_path, existed, error):
    path = tmp_path / "picture"
    if existed:
        write_whole(path, filling(b"before"), force=False)
        path.chmod(0o750)
    before = all_files(tmp_path)

    def fail(folder):
        (folder / "half").write_bytes(b"half")
        raise error

    with pytest.raises((FileError, KeyboardInterrupt)):
        write_whole(path, filling(b"after")._replace(fill=fail), force=True)
    assert all_files(tmp_path) == before
    write_whole(path, filling(b"after"), force=existed)
    assert all_files(tmp_path) == {"picture/inner/file": b"after"}
    assert not existed or path.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("existed", [False, True])
def test_a_folder_comes_back_if_what_is_written_with_it_cannot_be(tmp_path, existed, monkeypatch):
    path, other = tmp_path / "1", tmp_path / "2"
    other.write_bytes(b"before")
    if existed:
        write_whole(path, filling(b"before"), force=False)
    before, replace = all_files(tmp_path), os.replace

    def refuse(source, target):
        if target == other and source.read_bytes() == b"after":
            raise PermissionError(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(FileError, match=r"2 must be written in full; writing failed: .*Permission"):
        write_together({path: filling(b"after"), other: writing(b"after")}, force=True)
    assert all_files(tmp_path) == before


KILLED = """
import os, pathlib, sys
from evoem.runtime.atomic_files import FolderWrite, write_whole
path, moment = pathlib.Path(sys.argv[1]), int(sys.argv[2])
moves = []
rename = pathlib.Path.rename

def counted(self, target):
    if len(moves) == moment:
        os._exit(1)  # no more is done than if it were killed
    moves.append(target)
    return rename(self, target)

pathlib.Path.rename = counted
write_whole(path, FolderWrite(lambda folder: (folder / "inner").mkdir(), bool), force=True)
os._exit(1)
"""


@POSIX
@pytest.mark.parametrize(("moment", "found"), [(0, True), (1, False), (2, True)])
def test_a_folder_that_was_being_replaced_is_not_lost(tmp_path, moment, found):
    """Killed before the old one is moved, between the two moves, and after them."""
    path = tmp_path / "picture"
    write_whole(path, filling(b"before"), force=False)
    killed = [sys.executable, "-c", KILLED, str(path), str(moment)]
    assert subprocess.run(killed, check=False).returncode == 1
    assert path.exists() == found
    if not found:  # it is beside, and comes back when somebody writes there
        with pytest.raises(FileError, match="must not exist yet unless force is given"):
            write_whole(path, filling(b"after"), force=False)
        assert all_files(path) == {"inner/file": b"before"}
    write_whole(path, filling(b"after"), force=True)
    assert all_files(tmp_path) == {"picture/inner/file": b"after"}
    assert left(tmp_path) == ["picture"]


def test_a_folder_replaces_nothing_that_is_read_or_of_another_kind(tmp_path):
    path = tmp_path / "picture"
    write_whole(path, filling(b"before"), force=False)
    kind = filling(b"").may_replace
    for read in (path, path / "inner", path / "inner" / "file"):
        with pytest.raises(FileError, match=r"must not be written over: it is read\."):
            check_place(path, force=True, inputs=[read], may_replace=kind)
    check_place(path, force=True, inputs=[tmp_path / "other"], may_replace=kind)
    check_place(path / "new", force=True, inputs=[path], may_replace=kind)
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"must be a folder, as its name says; found a file\."):
        check_place(tmp_path / "file", force=True, may_replace=kind)
    with pytest.raises(FileError, match=r"written over: it is a folder of another kind\."):
        check_place(tmp_path, force=True, may_replace=kind)
    with pytest.raises(FileError, match=r"must be a file; got a folder\."):
        check_place(path, force=True)
