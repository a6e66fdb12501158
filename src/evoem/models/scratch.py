"""Room for what is computed about one state at a time."""

from collections.abc import Callable

# Active latents that there is room for at first: most states have few.
FEW = 32


def with_room(kernel: Callable[[int, int], int], n_rows: int, most: int) -> None:
    """Run a kernel on all rows, from a given one on, with room for so many active latents, at most
    `most`; it returns the row at which it needs more.

    Kernels do not make more themselves: references to arrays that may be replaced would be counted,
    atomically, for every state, by which sums over complete rows took 1.5 times as long.
    """
    room, row = min(FEW, most), 0
    while (row := kernel(row, room)) < n_rows:
        room = min(2 * room, most)
