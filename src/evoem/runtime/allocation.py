"""Keep the memory of arrays that come and go, instead of returning it to the system each time."""

from functools import cache

import numpy as np

# The largest block from which the allocator of glibc learns (DEFAULT_MMAP_THRESHOLD_MAX), less what
# it adds to a request.
LARGEST_LEARNT = (32 << 20) - (64 << 10)


@cache
def keep_freed_memory() -> None:
    """Let the allocator reuse freed blocks of up to 32 MB.

    glibc takes large blocks from the system and returns them when they are freed, until it has seen
    a block of that size being freed. The arrays of a chunk of rows come and go all the time, and
    new pages from the system cost up to a third of an E-step. Other allocators ignore this.
    """
    block = np.empty(LARGEST_LEARNT, np.uint8)
    del block
