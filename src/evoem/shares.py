"""The rows of each process, and the blocks of rows that statistics are summed in.

Blocks lie where they lie whatever the number of processes: their edges follow from the number of
all rows, the number of mini-batches and the size of statistics. Sums over a block are made by one
process in one way, and blocks are added exactly, so that a run has the same bits on any number of
processes. Processes may have any consecutive rows. What a share has of a block that started in an
earlier one is lent to that for the time of a run.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.data import Data
from evoem.em_state import EMState
from evoem.models.base import Model, size_in_bytes
from evoem.runtime.communicator import Communicator, any_of
from evoem.runtime.row_ranges import Ranges, moved, ranges_of, whole_blocks
from evoem.runtime.threads import blocks


class Layout(NamedTuple):
    """Where the rows of this process stand among all, and in which blocks they are summed."""

    comm: Communicator
    n_rows: int  # of all processes
    parts: list[list[slice]]  # blocks of this process, in its own rows, by mini-batch


def blocks_of_parts(n_rows: int, n_parts: int, n_bytes: int) -> list[list[slice]]:
    """The blocks of each mini-batch, for statistics of so many bytes.

    Mini-batches have equally many rows, but for the last blocks, and take turns block by block: so
    consecutive rows, such as those of one process, are in all of them.
    """
    usual = blocks(slice(0, -(-n_rows // n_parts)), n_bytes)
    parts: list[list[slice]] = [[] for _ in range(n_parts)]
    start = 0
    for block in usual:
        for part in parts:
            stop = min(start + block.stop - block.start, n_rows)
            if stop > start:
                part.append(slice(start, stop))
            start = stop
    return parts


class Shares(NamedTuple):
    """The rows of all processes, and those of this one."""

    comm: Communicator
    own: Ranges  # what each process has

    @property
    def n_rows(self) -> int:
        """Of all."""
        return int(self.own[-1].stop)

    @property
    def start(self) -> int:
        """The number of the first row of this process."""
        return int(self.own[self.comm.rank].start)

    def number(self, data: Data) -> Data:
        """The rows with their numbers among all, which are refused if they have others.

        If any process misses values, all have a mask: rows are then worked on in the same way
        wherever they are.
        """
        if self.comm.size == 1:
            return data
        numbers = self.start + np.arange(len(data), dtype=np.uint64)
        others = data.rows is not None and not np.array_equal(data.rows, numbers)
        mixed, masked = any_of(self.comm, others, data.observed is not None)
        if mixed:
            raise ValueError(
                "rows must number the rows of all processes from zero, those of the first process "
                "first; got others."
            )
        data = data.numbered(numbers)
        return data.masked() if masked else data


def shares_of(data: Data, comm: Communicator) -> Shares:
    """What each process has of the rows, which must be alike."""
    validation.communicator(comm)
    kinds = comm.collect((len(data), data.X.shape[1], str(data.X.dtype)))
    if len({kind[1:] for kind in kinds}) > 1:
        raise ValueError(
            "X must have the same features and type in all processes; got "
            + ", ".join(f"{width} of {dtype}" for _, width, dtype in sorted(set(kinds)))
            + "."
        )
    own = ranges_of([kind[0] for kind in kinds])
    if own[-1].stop == 0:
        raise ValueError(f"X must have at least one row; got the shape {data.X.shape}.")
    return Shares(comm, own)


def share_in_blocks(
    model: Model, params: Any, n_rows: int, comm: Communicator, n_parts: int = 1
) -> slice:
    """An even share of so many rows in whole blocks, which no process has to lend or to copy.

    Parameters
    ----------
    model, params : Model, NamedTuple
        What is learnt, and parameters of the sizes that it will have.
    n_rows : int
        Of all processes.
    comm : Communicator
    n_parts : int
        Mini-batches.

    Returns
    -------
    slice
        The rows of this process.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import BinarySparseCodingModel
    >>> from evoem.runtime.communicator import ALONE
    >>> model, some = BinarySparseCodingModel(), np.arange(80.0).reshape(20, 4) % 7
    >>> params = model.initialize(some, None, 3, np.random.default_rng(0))
    >>> share_in_blocks(model, params, 1000, ALONE)
    slice(0, 1000, None)
    """
    n_bytes = size_in_bytes(model.empty_statistics(params))
    counts = [
        n_rows * (rank + 1) // comm.size - n_rows * rank // comm.size for rank in range(comm.size)
    ]
    edges = edges_of(blocks_of_parts(n_rows, n_parts, n_bytes))
    return whole_blocks(ranges_of(counts), edges)[comm.rank]


def edges_of(parts: list[list[slice]]) -> NDArray[np.int64]:
    """Where blocks start, and the end of the last."""
    return np.sort([0, *(block.stop for part in parts for block in part)])


class SharedRows:
    """Data in whole blocks, and the way there and back for what belongs to rows.

    Parameters
    ----------
    model, data, params : Model, Data, NamedTuple
    n_parts : int
        Mini-batches.
    comm : Communicator
    """

    def __init__(
        self, model: Model, data: Data, params: Any, n_parts: int, comm: Communicator
    ) -> None:
        shares = shares_of(data, comm)
        n_bytes = size_in_bytes(model.empty_statistics(params))
        self._comm = comm
        self._own = self._lent = shares.own
        data = shares.number(data)
        if not comm.exact and comm.size > 1:  # each process has blocks of its own
            self.data = data
            parts = blocks_of_parts(len(data), n_parts, n_bytes)
            self.layout = Layout(comm, shares.n_rows, parts)
            return
        parts = blocks_of_parts(shares.n_rows, n_parts, n_bytes)
        self._lent = whole_blocks(shares.own, edges_of(parts))
        self.data = data.map_rows(self._move) if self._moves else data
        mine = self._lent[comm.rank]
        own_parts = [
            [
                slice(block.start - mine.start, block.stop - mine.start)
                for block in part
                if mine.start <= block.start < mine.stop
            ]
            for part in parts
        ]
        self.layout = Layout(comm, shares.n_rows, own_parts)

    @property
    def rows(self) -> slice:
        """The rows of this process, in whole blocks, among all."""
        return self._lent[self._comm.rank]

    @property
    def of_all(self) -> Ranges:
        """Those of each process."""
        return self._lent

    @property
    def _moves(self) -> bool:
        return self._own != self._lent

    def _move(self, values: NDArray[Any]) -> NDArray[Any]:
        return moved(values, self._own, self._lent, self._comm)

    def forth(self, state: EMState) -> EMState:
        """The state for rows in whole blocks."""
        if not self._moves:
            return state
        return state._replace(
            states=self._move(state.states), log_joints=self._move(state.log_joints)
        )

    def back(self, state: EMState) -> EMState:
        """The state for the rows as they were given."""
        if not self._moves:
            return state
        ways = self._lent, self._own, self._comm
        return state._replace(
            states=moved(state.states, *ways), log_joints=moved(state.log_joints, *ways)
        )
