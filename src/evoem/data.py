"""Rows of data, checked once, and functions applied to them chunk by chunk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from evoem import posterior, validation
from evoem.errors import numbered_rows
from evoem.models.base import Model
from evoem.runtime.threads import blocks, in_threads, one_blas_thread
from evoem.validation import Mask, Positions

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Rows of data, checked once.

    Parameters
    ----------
    X : float32 or float64 array of shape (n_samples, n_features)
        Finite; zero where nothing was observed.
    observed : bool array of shape (n_samples, n_features), optional
        False where a value is missing; a mask of ones becomes None.
    positions : array of shape (n_samples, 2), optional
        Positions of the rows, for models whose prior depends on them.
    rows : uint64 array of shape (n_samples,), optional
        Global numbers of the rows, which select their random numbers, if these rows are a part of
        larger data.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import em
    >>> em.Data(np.zeros((5, 3)))
    Data(5 rows of 3 features, float64)
    """

    X: NDArray[np.floating]
    observed: Mask | None = None
    positions: Positions = None
    rows: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        validation.data(self.X, self.observed)
        validation.finite(self.X, self.observed)
        validation.positions(self.positions, len(self.X))
        if self.rows is not None:
            validation.row_numbers(self.rows, len(self.X))
        if self.observed is not None and self.observed.all():  # the same by faster code
            object.__setattr__(self, "observed", None)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        n_rows, n_features = self.X.shape
        missing = "" if self.observed is None else f", {1 - self.observed.mean():.1%} missing"
        return f"Data({n_rows} rows of {n_features} features, {self.X.dtype}{missing})"

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """Global numbers of the rows; by default they are counted from zero."""
        return np.arange(len(self), dtype=np.uint64) if self.rows is None else self.rows

    def take(self, which: slice | NDArray[np.integer] | NDArray[np.bool_]) -> Self:
        """Some of the rows, which need no second check."""
        return self.map_rows(lambda values: values[which])

    def map_rows(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Self:
        """Rows that a function makes of these, array by array, which need no second check."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            object.__setattr__(other, name, None if value is None else function(value))
        return other

    def masked(self) -> Self:
        """The same rows with a mask in any case."""
        if self.observed is not None:
            return self
        other = self.take(slice(None))
        object.__setattr__(other, "observed", np.ones(self.X.shape, np.bool_))
        return other

    def numbered(self, rows: NDArray[np.uint64]) -> Self:
        """The same rows with these global numbers."""
        other = self.take(slice(None))
        object.__setattr__(other, "rows", rows)
        return other

    def prepare(self, model: Model, derived: Any) -> Any:
        """The rows as the model needs them, see `Model.prepare_rows`."""
        where = () if self.positions is None else (self.positions,)
        return model.prepare_rows(derived, self.X, self.observed, *where)


def map_chunks(
    function: Callable[..., T],
    model: Model,
    data: Data,
    params: Any,
    kept: NDArray[np.uint64],
    n_jobs: int,
    derived: Any = None,
    parts: list[slice] | None = None,
) -> list[list[T]]:
    """`function(derived, rows, chunk, log_joints)` of all chunks of rows, block by block.

    Blocks are those of `parts`, if they are given.
    """
    if derived is None:
        derived = model.prepare(params, data.X.dtype)

    def work(block: slice) -> list[T]:
        found = []
        for chunk in posterior.chunks(block, kept.shape[1]):
            rows = data.take(chunk).prepare(model, derived)
            with numbered_rows(range(chunk.start, chunk.stop)):
                log_joints = posterior.evaluate(model, derived, rows, kept[chunk])
            found.append(function(derived, rows, chunk, log_joints))
        return found

    results: list[list[T]] = []
    with one_blas_thread():
        in_threads(
            work, blocks(slice(0, len(data)), 0) if parts is None else parts, n_jobs, results.append
        )
    return results
