"""Errors in a user's model or installation, in the user's terms."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class LogJointError(ValueError):
    """A log-joint is not a number that EM can use; the error names the row and the state.

    Parameters
    ----------
    reason : str
        What was expected of the log-joint, and what it was.
    row : int
        The row it was computed for: in the data, once `numbered_rows` has replaced its number in
        the chunk that was processed.
    active : list of int
        The active latents of the state it was computed for.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import BlackBox, LogJointError
    >>> def log_joint(params, X, states):
    ...     return np.where(X[:, :1] > 5, np.nan, params["a"] * states.sum(-1))
    >>> model = BlackBox(log_joint, {"a": 1.0}, n_latents=2, update=False)
    >>> try:
    ...     model.fit(np.array([[1.0], [9.0], [2.0]]))
    ... except LogJointError as error:
    ...     print(error.row, error.reason)
    1 log_joint must return finite numbers or -inf; got nan
    """

    def __init__(self, reason: str, row: int, active: list[int]) -> None:
        super().__init__(reason, row, active)
        self.reason = reason
        self.row = row
        self.active = active

    def __str__(self) -> str:
        return f"{self.reason}, for row {self.row} and the state of active latents {self.active}."


@contextmanager
def numbered_rows(numbers: Sequence[int] | Any) -> Iterator[None]:
    """Let an error about one of these rows name its number in the whole data."""
    try:
        yield
    except LogJointError as error:
        error.row = int(numbers[error.row])
        raise


class MissingExtra(ImportError):
    """An optional package is not installed; the error names the extra that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} must be installed for this: pip install 'evoem[{extra}]'; it is not."
        )
