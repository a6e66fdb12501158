"""A cache of compiled code between runs: private to its user, and never able to fail a run.

The cache only saves time. Whatever goes wrong with it, code is compiled in memory instead, and the
first trouble is told, in one line, to the logger "evoem".

Files of the cache are run, so nobody else may be able to write them: a folder counts only if it and
all folders above belong to this user or to root, and no others may write to them. Where each user
has a group of their own, its members are no others. Each file begins with a hash of the rest: a
damaged one is not run, and is replaced.
"""

import errno
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from evoem.runtime.atomic_files import file_beside

try:
    import grp
    import pwd
except ImportError:  # not on this platform
    grp = pwd = None  # type: ignore[assignment]

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
# What is said of a file without an access list, or by a file system without any.
NO_ACCESS_LIST = (errno.ENODATA, errno.ENOTSUP)
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


def is_private(group: int) -> bool:
    """Whether nobody but this user, or root, is in a group.

    Many systems give each user a group of the same name, to which new folders belong, and may be
    written by. Where users cannot be listed the name tells.
    """
    if grp is None or pwd is None:
        return False
    trusted = trusted_owners()
    try:
        name, _, _, members = grp.getgrgid(group)
        names = {pwd.getpwuid(user).pw_name for user in (os.getuid(), 0)}
        if name not in names:
            return False
        users = {pwd.getpwnam(member).pw_uid for member in members}
    except KeyError:  # no such group or user
        return False
    return users | {one.pw_uid for one in pwd.getpwall() if one.pw_gid == group} <= trusted


def has_access_list(path: Path | int) -> bool:
    """Whether a list of Linux gives further users what the mode gives to the group."""
    try:
        os.getxattr(path, "system.posix_acl_access")
    except AttributeError:  # not on this platform, where modes do not show such lists
        return False
    except OSError as error:
        return error.errno not in NO_ACCESS_LIST
    return True


def others_may_write(path: Path | int, found: os.stat_result) -> bool:
    """Whether anybody but this user, or root, may write to a file or folder, given its mode."""
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    return has_access_list(path) or not is_private(found.st_gid)


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
        sticky = ahead and found.st_mode & stat.S_ISVTX
        if not sticky and others_may_write(here, found):
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
        # Whether code of a name was brought by another process, which is waited for.
        self.wait_for: Callable[[str], bool] = lambda name: False

    def trouble(self, what: object) -> None:
        """Say the first thing that goes wrong, and no other."""
        if not self._silent:
            self._silent = True
            LOGGER.warning("Problem with the cache of compiled code: %s.", what)

    def has(self, name: str) -> bool:
        """Whether something is kept by a name."""
        return self.folder is not None and (self.folder / name).is_file()

    def load(self, name: str) -> bytes | None:
        """What was kept by a name, if it is there, whole and ours."""
        if self.folder is None:
            return None
        path = self.folder / name
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if hasattr(os, "getuid") and (
                    found.st_uid not in trusted_owners() or others_may_write(file.fileno(), found)
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
        try:
            make_private(path.parent)
            with file_beside(path, 0o600, synced=False) as (_, file):
                file.write(CHECKSUM(content).digest())
                file.write(content)
        except OSError as error:
            self._writable = False
            self.trouble(error)


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
