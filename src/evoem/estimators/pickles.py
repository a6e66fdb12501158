"""Pickles of estimators say which version of the package made them."""

import importlib.metadata
import warnings
from functools import cache
from typing import Any

import sklearn.exceptions
from sklearn.base import BaseEstimator

MADE_BY = "_evoem_version"


class InconsistentVersionWarning(sklearn.exceptions.InconsistentVersionWarning):
    """An estimator was pickled by another version of the package.

    It is a scikit-learn warning of that name too, so that a filter for either holds for both.

    Parameters
    ----------
    estimator_name : str
        Name of its class.
    current_version, original_version : str
        The version that is running, and the one that made the pickle.

    Examples
    --------
    >>> from evoem.estimators.pickles import InconsistentVersionWarning
    >>> str(InconsistentVersionWarning("NoisyOr", "0.2", "0.1"))
    'NoisyOr was pickled by evoem 0.1 and is read by evoem 0.2: results may be wrong.'
    """

    def __init__(self, estimator_name: str, current_version: str, original_version: str) -> None:
        self.estimator_name = estimator_name
        self.current_version = current_version
        self.original_version = original_version

    def __str__(self) -> str:
        return (
            f"{self.estimator_name} was pickled by evoem {self.original_version} and is read by "
            f"evoem {self.current_version}: results may be wrong."
        )


@cache
def version() -> str:
    """The version of the package."""
    return importlib.metadata.version("evoem")


class VersionedPickles(BaseEstimator):
    """An estimator whose pickles record the version, with a warning where it differs."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), MADE_BY: version()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        made_by = state.pop(MADE_BY, "before 0.1.0")
        if made_by != version():
            warnings.warn(
                InconsistentVersionWarning(type(self).__name__, version(), made_by), stacklevel=2
            )
        super().__setstate__(state)
