"""The memory that is available: that of the machine, or less in a container."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Where the machine does not tell what it has.
MODEST_MEMORY = 8 << 30
# Where control groups are mounted, and where a process is told which ones it belongs to.
GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# What a group may take, in the two versions that there are; "max" is no limit.
LIMIT = "memory.max"
FIRST_LIMIT = "memory.limit_in_bytes"


def machine_memory() -> int:
    """Bytes of memory this machine has, or a modest guess."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this platform
        return MODEST_MEMORY


def available_memory(groups: Path = GROUPS, membership: Path = MEMBERSHIP) -> int:
    """Bytes of memory that this process may take at most.

    A container, or a job of a batch system, is a control group whose limit is less than what the
    machine has. Who takes more is killed. Groups lie within groups: the least limit counts.
    """
    return min([machine_memory(), *_limits(groups, membership)])


def _limits(groups: Path, membership: Path) -> Iterator[int]:
    try:
        entries = membership.read_text().splitlines()
    except (OSError, UnicodeDecodeError):  # not on this platform
        return
    for entry in entries:
        _, controllers, own = [*entry.split(":", 2), "", ""][:3]
        if not controllers:
            yield from _limits_along(groups, own, LIMIT)
        elif "memory" in controllers.split(","):
            yield from _limits_along(groups / "memory", own, FIRST_LIMIT)


def _limits_along(mount: Path, own: str, name: str) -> Iterator[int]:
    """The limits of a group and of those that it lies in, as far as they are seen from here.

    In a container the path may be that outside of it: then only what is mounted is seen.
    """
    group = mount / own.strip("/")
    for folder in (group, *group.parents):
        with suppress(OSError, ValueError):  # not there, or "max"
            yield int((folder / name).read_text())
        if folder == mount:
            break
