"""Scratch memory of kernels, for one state at a time."""

from collections.abc import Callable

# Active latents that there is room for at first: most states have few.
FEW = 32


def with_scratch(kernel: Callable[[int, int], int], n_rows: int, most: int) -> None:
    """Run a kernel on all rows with scratch memory for a number of active latents, at most `most`.

    The kernel returns the row at which it needs more, and is called again from there on with more.
    If kernels grew the arrays themselves, references to them would be counted, atomically, for
    every state: sums over complete rows took 1.5 times as long.
    """
    room, row = min(FEW, most), 0
    while (row := kernel(row, room)) < n_rows:
        room = min(2 * room, most)
