"""Compiled code kept between runs: where, whose, and never at the cost of a run.

The cache only saves time. Whatever goes wrong with it, code is compiled in memory instead, and the
first trouble is told, in one line, to the logger "evoem".

Files of the cache are run, so nobody else may be able to write them: a folder counts only if it and
all folders above belong to this user or to root, and no others may write to them. Each file begins
with a hash of the rest: a damaged one is not run, and is replaced.
"""

import errno
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

LOGGER = logging.getLogger("evoem")

PACKAGE = Path(__file__).parents[1]
# Imports of our own modules. A test compares what is found with the syntax tree, which would take
# longer to build than everything else here.
IMPORTS = re.compile(
    rb"^[ \t]*(?:from[ \t]+(evoem[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)"
    rb"|import[ \t]+(evoem[^\n#]*))",
    re.MULTILINE,
)
COMMENT = re.compile(rb"#[^\n]*")
MOST_LINKS = 40
CHECKSUM = hashlib.sha256
CHECKSUM_BYTES = 32

# ------------------------------------------------------------------------------------- versions


def source_of(package: Path, name: str) -> Path | None:
    """The file of a module, by its full name."""
    path = package.joinpath(*name.split(".")[1:])
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    return None


@cache
def imported_sources(package: Path, path: Path) -> frozenset[Path]:
    """Our own files that a file imports from, however late."""
    found = set()
    for module, names, modules in IMPORTS.findall(path.read_bytes()):
        listed = COMMENT.sub(b"", names or modules).decode().strip("()\r\n ")
        words = [entry.split()[0] for entry in listed.split(",") if entry.strip()]
        for word in words:
            full = f"{module.decode()}.{word}" if module else word
            found.add(source_of(package, full) or source_of(package, module.decode()))
    return frozenset(file for file in found if file is not None)


def sources_digest(path: Path, package: Path = PACKAGE) -> str:
    """Hash of a file and of all our own that it imports, and these in turn."""
    sources: set[Path] = set()
    ahead = [path]
    while ahead:
        one = ahead.pop()
        if one not in sources:
            sources.add(one)
            ahead += imported_sources(package, one)
    digest = hashlib.sha256()
    for one in sorted(sources):
        content = one.read_bytes()
        digest.update(f"{one.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


# -------------------------------------------------------------------------------------- folders


def user_cache_folder(chosen: str = "") -> Path:
    """The platform's cache folder of this user, unless one was chosen."""
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "evoem"


def temporary_cache_folder() -> Path:
    """One in the folder for temporary files, which all users share."""
    user = getattr(os, "getuid", int)()
    return Path(tempfile.gettempdir()) / f"evoem-cache-{user}"


def trusted_owners() -> set[int]:
    """Users who may run what they like as this one: itself, and root by whatever number."""
    return {0, os.getuid(), os.stat("/").st_uid}


def weak_spot(folder: Path) -> str | None:
    """Where others could put code into a folder, or swap it or one above; None if nowhere.

    Links are followed one by one, for what they lead through counts too. In a folder like that for
    temporary files (sticky), others cannot touch what is ours.
    """
    if not hasattr(os, "getuid"):
        return None  # what lies in a profile of Windows has access lists of its own
    trusted = trusted_owners()
    here, ahead = Path("/"), list(folder.absolute().parts[:0:-1])
    n_links = 0
    while True:
        found = here.lstat()
        if found.st_uid not in trusted:
            return f"{here} belongs to another user"
        if stat.S_ISLNK(found.st_mode):
            n_links += 1
            if n_links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = here.readlink()
            ahead += target.parts[: 0 if target.is_absolute() else None : -1]
            here = Path("/") if target.is_absolute() else here.parent
            continue
        if found.st_mode & 0o022 and not (ahead and found.st_mode & stat.S_ISVTX):
            return f"others may write to {here}"
        if not ahead:
            return None
        part = ahead.pop()
        here = here.parent if part == ".." else here / part


def make_private(folder: Path) -> None:
    """Make a folder, and those above that are missing, for this user alone."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


# ---------------------------------------------------------------------------------------- files


class CodeCache:
    """Files of compiled code in a folder; without one, nothing is found and nothing kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._writable = folder is not None
        self._silent = False

    def trouble(self, what: object) -> None:
        """Say the first thing that goes wrong, and no other."""
        if not self._silent:
            self._silent = True
            LOGGER.warning("The cache of compiled code is not used as it should be: %s.", what)

    def load(self, name: str) -> bytes | None:
        """What was kept by a name, if it is there, whole and ours."""
        if self.folder is None:
            return None
        path = self.folder / name
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if hasattr(os, "getuid") and (
                    found.st_uid not in trusted_owners() or found.st_mode & 0o022
                ):
                    self.trouble(f"{path} may be written by others")
                    return None
                checksum, content = file.read(CHECKSUM_BYTES), file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.trouble(error)
            return None
        if CHECKSUM(content).digest() != checksum:
            self.trouble(f"{path} is damaged")
            return None
        return content

    def save(self, name: str, content: bytes) -> None:
        """Keep something by a name; after a failure nothing more is kept."""
        if self.folder is None or not self._writable:
            return
        path = self.folder / name
        temporary = None
        try:
            make_private(path.parent)
            handle, temporary = tempfile.mkstemp(".tmp", path.stem, path.parent)
            with open(handle, "wb") as file:
                file.write(CHECKSUM(content).digest())
                file.write(content)
            os.replace(temporary, path)  # another process may be writing the same
            temporary = None
        except OSError as error:
            self._writable = False
            self.trouble(error)
        finally:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)


def usable(folder: Path) -> bool:
    """Whether something can be written to a folder, which is made."""
    try:
        make_private(folder)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def open_cache(chosen: str = "") -> CodeCache:
    """The cache of this user: in a folder that can be written to, by nobody else."""
    reasons = []
    for find in (lambda: user_cache_folder(chosen), temporary_cache_folder):
        try:
            folder = find().absolute()
            if not usable(folder):
                continue
            reason = weak_spot(folder)
        except (OSError, RuntimeError):  # no temporary folder, or a user without a home
            continue
        if reason is None:
            opened = CodeCache(folder)
            break
        reasons.append(f"{folder} is refused, since {reason}")
    else:
        opened = CodeCache(None)
        reasons.append("no folder can be written to")
    if reasons:
        opened.trouble("; ".join(reasons))
    return opened
