"""Write files, and folders that are pictures, whole or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

try:
    import fcntl
except ImportError:  # not on this platform
    fcntl = None  # type: ignore[assignment]

# What file systems without locks say; on them two processes that write the same file at the same
# time may fail.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
# What file systems say that sync files, but no folders.
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_BINARY = getattr(os, "O_BINARY", 0)


class FileError(ValueError):
    """A file that cannot be read or written, said in one sentence."""


class FolderWrite(NamedTuple):
    """What writes a folder."""

    fill: Callable[[Path], object]
    may_replace: Callable[[Path], bool]  # whether a folder is of the same kind


WriteFile = Callable[[IO[bytes]], object]
Write = WriteFile | FolderWrite


def check_place(
    path: Path,
    *,
    force: bool,
    inputs: Iterable[Path] = (),
    may_replace: Callable[[Path], bool] | None = None,
) -> None:
    """Refuse a path that nothing could be written to; an existing file too, unless `force`.

    What is read, `inputs`, is never written over; nor is anything but a file, such as a device. If
    a folder is to be written, nothing but a folder that it `may_replace` is written over.
    """
    try:
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileError(f"{path} must be in an existing folder; found no {folder}.")
        if may_replace is not None:
            _check_folder(path, force, inputs, may_replace)
        elif path.is_dir():
            raise FileError(f"{path} must be a file; got a folder.")
        elif path.exists():
            if not path.is_file():
                raise FileError(f"{path} must be a file; got a pipe, a device or the like.")
            if any(other.exists() and path.samefile(other) for other in inputs):
                raise FileError(f"{path} must not be written over: it is read.")
            if not force:
                raise FileError(f"{path} must not exist yet unless force is given; found a file.")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileError(
            f"{path} must be a place that can be written to; got {error.strerror}."
        ) from error
    except FileError:
        raise
    except ValueError as error:  # a null character in its name
        raise FileError(f"{str(path)!r} must be the path of a file; got an {error}.") from error


def _check_folder(
    path: Path, force: bool, inputs: Iterable[Path], may_replace: Callable[[Path], bool]
) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise FileError(f"{path} must be a folder, as its name says; found a file.")
    target = Path(os.path.realpath(path))
    if any(target in (real := Path(os.path.realpath(one)), *real.parents) for one in inputs):
        raise FileError(f"{path} must not be written over: it is read.")
    if not may_replace(path):
        raise FileError(f"{path} must not be written over: it is a folder of another kind.")
    if not force:
        raise FileError(f"{path} must not exist yet unless force is given; found a folder.")


def write_whole(path: Path, write: Write, *, force: bool) -> None:
    """Write a file, or nothing; see `write_together`."""
    write_together({path: write}, force=force)


def write_together(outputs: Mapping[Path, Write], *, force: bool) -> None:
    """Write all files, or none: beside their places, and moved there when all are on the disk.

    Existing files are replaced only with `force`, and keep their permissions. What was moved before
    something failed is moved back. Two paths must not lead to the same file.
    """
    if not outputs:
        return
    targets = {path: Path(os.path.realpath(path)) for path in outputs}  # a link stays a link

    def check(path: Path) -> None:
        write = outputs[path]
        rule = write.may_replace if isinstance(write, FolderWrite) else None
        check_place(path, force=force, may_replace=rule)

    for path in outputs:
        check(path)
    with _told(next(iter(outputs))), ExitStack() as opened, ExitStack() as undone:
        beside: dict[Path, _Beside | _FolderBeside] = {}
        for path in sorted(outputs, key=targets.__getitem__):  # nobody waits for who waits for him
            with _told(path):
                beside[path] = _written(outputs[path], targets[path], opened)
        for path in outputs:
            with _told(path):
                check(path)  # another process may have made it
                beside[path].take_place_undoably(opened, undone, force=force)
        undone.pop_all()
    for folder in {target.parent for target in targets.values()}:
        _sync_folder(folder)


def _written(write: Write, target: Path, opened: ExitStack) -> "_Beside | _FolderBeside":
    """What is written beside the target, on the disk, and gone when `opened` is closed."""
    if isinstance(write, FolderWrite):
        folder = opened.enter_context(_folder_beside(target))
        write.fill(folder.path)
        folder.complete()
        return folder
    beside = opened.enter_context(_beside(target))
    write(beside.file)
    beside.complete()
    return beside


def _kept(target: Path, opened: ExitStack) -> Path:
    """Another name for a file that is about to be replaced, until `opened` is closed.

    Meanwhile nobody else writes to the target: what has that name was left by a killed process.
    """
    kept = _hidden(target, "as it was")
    kept.unlink(missing_ok=True)
    opened.callback(kept.unlink, missing_ok=True)
    try:
        os.link(target, kept)
    except OSError:  # a file system without links
        shutil.copy2(target, kept)
    return kept


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say which file could not be written."""
    try:
        yield
    except FileError:
        raise
    except (OSError, ValueError, struct.error) as error:
        raise FileError(f"{path} must be written in full; writing failed: {error}.") from error


def replace_whole(path: Path, write: WriteFile) -> None:
    """Write a file that is written again and again: what was there stays until then."""
    target = Path(os.path.realpath(path))
    with _told(path):
        with file_beside(target) as (temporary, file):
            write(file)
            if target.exists():
                shutil.copymode(target, temporary)
        _sync_folder(target.parent)


@contextmanager
def file_beside(
    target: Path, mode: int = 0o666, *, synced: bool = True
) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file that takes the place of `target` when all is written to it, and on the disk."""
    with _beside(target, mode) as beside:
        yield beside.path, beside.file
        beside.complete(synced=synced)
        beside.take_place()


class _Beside:
    """A new file that is to take the place of another."""

    def __init__(self, target: Path, path: Path, file: IO[bytes]) -> None:
        self.target = target
        self.path = path
        self.file = file
        self.moved = False

    def complete(self, *, synced: bool = True) -> None:
        """All was written to it."""
        self.file.flush()
        if synced:
            os.fsync(self.file.fileno())
        if fcntl is None:
            self.file.close()  # elsewhere open files cannot be renamed

    def take_place(self, *, force: bool = True) -> None:
        """Take the name of the target, with `force` from what has it."""
        if not force:
            try:
                os.link(self.path, self.target)
                return
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                pass
        os.replace(self.path, self.target)
        self.moved = True

    def take_place_undoably(self, opened: ExitStack, undone: ExitStack, *, force: bool) -> None:
        """The same, so that what was there comes back when `undone` is closed."""
        existed = self.target.exists()
        if existed:
            shutil.copymode(self.target, self.path)
            undone.callback(os.replace, _kept(self.target, opened), self.target)
        self.take_place(force=force)
        if not existed:
            undone.callback(self.target.unlink, missing_ok=True)


class _FolderBeside:
    """A new folder that is to take the place of another.

    That takes two steps, between which no folder has the name. What is killed just then leaves the
    old one beside, and who next writes there brings it back.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = _hidden(target, "folder to be")
        self.kept = _hidden(target, "folder as it was")

    def clear(self) -> None:
        """Remove what is not in its place, and bring back what is in none."""
        if self.path.exists():
            shutil.rmtree(self.path)
        if self.kept.exists():
            if self.target.exists():
                shutil.rmtree(self.kept)
            else:
                self.kept.rename(self.target)

    def complete(self) -> None:
        """All was written to it."""
        for folder, _, names in os.walk(self.path, topdown=False):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            _sync_folder(Path(folder))

    def take_place_undoably(self, opened: ExitStack, undone: ExitStack, *, force: bool) -> None:
        """Take the name of the target; what had it comes back when `undone` is closed."""
        undone.callback(self._step_back)
        if self.target.exists():
            shutil.copymode(self.target, self.path)
            self.target.rename(self.kept)
        self.path.rename(self.target)

    def _step_back(self) -> None:
        if not self.path.exists():
            self.target.rename(self.path)
        if self.kept.exists():
            self.kept.rename(self.target)


@contextmanager
def _folder_beside(target: Path) -> Iterator[_FolderBeside]:
    """A folder beside the target, which is gone at the end unless it has taken its place."""
    with _beside(target):  # for whoever has that file
        folder = _FolderBeside(target)
        folder.clear()
        try:
            folder.path.mkdir()
            yield folder
        finally:
            folder.clear()


@contextmanager
def _beside(target: Path, mode: int = 0o666) -> Iterator[_Beside]:
    """A file beside the target, which is gone at the end unless it has taken its place.

    For each target it has a name of its own, always the same: what a killed process leaves, the
    next one removes. While the file is written it is locked; others wait who write to the target.
    Where there are no such locks the name is random, and what is left stays.
    """
    temporary = _hidden(target, "to be")
    file = open(temporary, "w+b", opener=lambda *_: _new_locked(temporary, mode))  # noqa: SIM115
    beside = _Beside(target, temporary, file)
    try:
        yield beside
    finally:
        if fcntl is None:
            _close(file)
        if not beside.moved:
            temporary.unlink(missing_ok=True)  # while it is locked
        _close(file)


def _close(file: IO[bytes]) -> None:
    """Close a file of which all is on the disk, or nothing is wanted any more.

    What could not be written, to a full disk, is tried again by `close`, which says so again.
    """
    with suppress(OSError):
        file.close()


def _hidden(target: Path, what: str) -> Path:
    """A name beside a file, always the same where locks tell whether somebody else has it."""
    digest = hashlib.blake2b(os.fsencode(target.name), digest_size=8, person=what.encode())
    name = secrets.token_hex(8) if fcntl is None else digest.hexdigest()
    return target.with_name(f".evoem-{name}.tmp")


def _new_locked(path: Path, mode: int) -> int:
    """A file that was not there before, opened, and locked where that is possible."""
    while True:
        try:
            opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, mode)
            if _locked(opened, path):
                return opened
        except FileExistsError:
            try:
                opened = os.open(path, os.O_RDONLY | _BINARY)
            except FileNotFoundError:  # done just now
                continue
            if _locked(opened, path):  # left by a process that is no more
                path.unlink(missing_ok=True)
        os.close(opened)


def _locked(opened: int, path: Path) -> bool:
    """Wait for a lock; False if the file has lost its name meanwhile."""
    if fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
    try:
        return os.path.samestat(os.fstat(opened), os.stat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Let a new name survive a power failure too, where folders can be opened."""
    if os.name != "posix":
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # new files may be put into it, but it may not be read
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(opened)
