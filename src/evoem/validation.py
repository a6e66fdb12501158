"""Checks of arguments: an error is one sentence with the name, the rule and the value received."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Positions = NDArray[np.floating] | None
# All states of a row are kept for exact inference; more latents than this would not fit in memory.
MOST_ENUMERATED = 20
LARGEST_INTEGER = 2**63 - 1  # what arrays and kernels count with
ROWS_AT_ONCE = 1 << 13  # that are looked at for what is not finite
LARGEST = 1e100  # values; sums of their squares are still far from overflow


def integer(name: str, value: Any, least: int, most: int | None = None, reason: str = "") -> int:
    """`value` as an int in [least, most]."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if most is None and whole and value > LARGEST_INTEGER:
        most = LARGEST_INTEGER
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    rule = f"at least {least}" if most is None else f"between {least} and {most}"
    raise ValueError(f"{name} must be an integer {rule}{reason}; got {value!r}.")


def real(name: str, value: Any, least: float, most: float = np.inf) -> float:
    """`value` as a float in [least, most]."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and np.isfinite(float(value)) and least <= float(value) <= most:
        return float(value)
    rule = f"at least {least:g}" if most == np.inf else f"between {least:g} and {most:g}"
    raise ValueError(f"{name} must be a number {rule}; got {value!r}.")


def boolean(name: str, value: Any) -> bool:
    """`value` as a bool."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ValueError(f"{name} must be True or False; got {value!r}.")


def choice(name: str, value: Any, options: Collection[str]) -> str:
    """`value`, one of `options`."""
    if isinstance(value, str) and value in options:
        return value
    listed = ", ".join(map(repr, options))
    raise ValueError(f"{name} must be one of {listed}; got {value!r}.")


def candidates(name: str, value: Any, select: str | None) -> tuple[int, ...]:
    """A positive integer, or with a rule to select by any number of them."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if not listed and not (isinstance(value, np.ndarray) and value.ndim == 1):
        return (integer(name, value, 1),)
    if select is None:
        raise ValueError(f"{name} must be one integer unless select is given; got {value!r}.")
    if len(value) == 0:
        raise ValueError(f"{name} must have something to select from; got {value!r}.")
    return tuple(integer(f"{name}'s entries", entry, 1) for entry in value)


def restarts(value: Any, select: str | None) -> None:
    """Refuse seeds that there is no rule to select from."""
    integer("restarts", value, 1)
    if value > 1 and select is None:
        raise ValueError(f"restarts must be 1 unless select is given; got {value!r}.")


def resumable(checkpoint: Any, resume: Any) -> None:
    """Refuse to go on from nowhere."""
    boolean("resume", resume)
    if resume and checkpoint is None:
        raise ValueError("checkpoint must be given with resume; got none.")


def jobs(value: Any) -> None:
    """Refuse a number of threads that joblib would."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (whole and value != 0):
        raise ValueError(f"n_jobs must be an integer other than 0; got {value!r}.")


def random_state(value: Any) -> None:
    """Refuse what no seed can be drawn from."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and 0 <= value < 2**32:
        return
    generators = np.random.RandomState | np.random.Generator
    if value is not None and value is not np.random and not isinstance(value, generators):
        raise ValueError(
            "random_state must be None, an integer between 0 and 2**32 - 1, a RandomState or a "
            f"Generator; got {value!r}."
        )


def unchanged(name: str, value: Any, before: Any) -> None:
    """Refuse to go on from a fit with something else than it had."""
    if value != before:
        raise ValueError(f"{name} must stay {before!r} with warm_start=True; got {value!r}.")


def integers(name: str, value: Any, least: int) -> tuple[int, ...]:
    """A list or tuple of integers of at least `least`."""
    if not isinstance(value, tuple | list):
        raise ValueError(f"{name} must be a sequence of integers; got {value!r}.")
    return tuple(integer(f"{name}[{place}]", entry, least) for place, entry in enumerate(value))


def function(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ValueError(f"{name} must be callable; got {value!r}.")


def callback(value: Any) -> None:
    """Refuse what cannot be called."""
    if value is not None and not callable(value):
        raise ValueError(f"callback must be callable or None; got {value!r}.")


def communicator(value: Any) -> None:
    """Refuse what cannot talk to other processes."""
    if not all(hasattr(value, name) for name in ("rank", "size", "add", "collect")):
        raise ValueError(
            f"comm must be a communicator, such as evoem.distributed.world(); got {value!r}."
        )


def n_states(value: Any, n_latents: int) -> int:
    """Number of states per row: at most 2**n_latents. "all" is that many, None a default."""
    n_latents = int(n_latents)
    possible = 2**n_latents if n_latents < 63 else None
    if value is None:
        return 60 if possible is None else min(60, possible)
    if isinstance(value, str):
        if value != "all":
            raise ValueError(f"n_states must be an integer, None or 'all'; got {value!r}.")
        if n_latents > MOST_ENUMERATED:
            raise ValueError(
                f"n_states='all' needs n_latents of at most {MOST_ENUMERATED}; got {n_latents}."
            )
        return int(2**n_latents)
    return integer("n_states", value, 1, possible, " (2**n_latents)" if possible else "")


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def data(X: Any, observed: Mask | None) -> None:
    """Refuse arrays that kernels would misread; cheap, for every call into the core."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype not in (np.float32, np.float64):
        what = f"{X.dtype} of shape {X.shape}" if isinstance(X, np.ndarray) else repr(type(X))
        raise ValueError(f"X must be a 2-D array of float32 or float64; got {what}.")
    if observed is None:
        return
    if not isinstance(observed, np.ndarray) or observed.dtype != np.bool_:
        raise ValueError(f"observed must be a boolean array or None; got {type(observed)!r}.")
    if observed.shape != X.shape:
        raise ValueError(f"observed must have the shape of X, {X.shape}; got {observed.shape}.")


def positions(value: Any, n_rows: int) -> None:
    """Refuse places that rows cannot lie at."""
    if value is None:
        return
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
        what = value.dtype if isinstance(value, np.ndarray) else type(value)
        raise ValueError(f"positions must be an array of float32 or float64; got {what!r}.")
    if value.shape != (n_rows, 2):
        raise ValueError(f"positions must have the shape {(n_rows, 2)}; got {value.shape}.")
    if not np.isfinite(value).all():
        raise ValueError(f"positions must be finite; got {value[~np.isfinite(value)][0]}.")


def same_rows(X: NDArray[np.floating], states: NDArray[np.uint64]) -> None:
    """Refuse data that a state was not made for."""
    if len(X) != len(states):
        raise ValueError(f"X must have the {len(states)} rows of the state; got {len(X)}.")


def same_size(name: str, states: NDArray[np.uint64], n_states: int) -> None:
    """Refuse sets of states of another size."""
    if states.shape[1] != n_states:
        raise ValueError(
            f"{name} must have {n_states} (n_states) states a row; got {states.shape[1]}."
        )


def finite(X: NDArray[np.floating], observed: Mask | None) -> None:
    """Refuse NaN and infinities: in the core missing values are a mask, with zeros in X."""
    for part in _parts(X):
        wrong = ~np.isfinite(X[part])
        if observed is not None:
            wrong |= ~observed[part] & (X[part] != 0)
        if wrong.any():
            raise ValueError(
                "X must be finite, with missing values False in observed and zero here; "
                f"got {X[part][wrong][0]}."
            )


def _parts(X: NDArray[np.floating]) -> Iterator[slice]:
    """Rows, some at a time: what is found out of all at once would be as large as a quarter."""
    yield from (slice(start, start + ROWS_AT_ONCE) for start in range(0, len(X), ROWS_AT_ONCE))


def same_features(X: NDArray[np.floating], params: Any) -> None:
    """Refuse data of another width than that of the parameters, as far as these tell it."""
    components = getattr(params, "components", None)
    if components is not None and components.shape[1] != X.shape[1]:
        raise ValueError(
            f"X must have the {components.shape[1]} features of the parameters; got {X.shape[1]}."
        )


def row_numbers(rows: Any, n_rows: int) -> None:
    """Refuse what cannot number the rows."""
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint64 or rows.shape != (n_rows,):
        raise ValueError(
            f"rows must be a uint64 array of shape {(n_rows,)}; got {_described(rows)}."
        )


def kept_states(name: str, states: Any, n_rows: int, n_latents: int) -> None:
    """Refuse packed states that kernels would misread."""
    width = -(-n_latents // 64)
    fits = isinstance(states, np.ndarray) and states.dtype == np.uint64 and states.ndim == 3
    if not fits or len(states) != n_rows or states.shape[2] != width:
        raise ValueError(
            f"{name} must be a uint64 array of shape ({n_rows}, n_states, {width}); "
            f"got {_described(states)}."
        )
    if n_latents % 64 and (states[:, :, -1] >> np.uint64(n_latents % 64)).any():
        raise ValueError(f"{name} must have no latent beyond the {n_latents} there are; got some.")


def split_missing(X: NDArray[np.floating]) -> tuple[NDArray[np.floating], Mask | None]:
    """Data with zeros for NaN, and the mask of observed values: None if all are."""
    if not any(np.isnan(X[part]).any() for part in _parts(X)):
        return np.ascontiguousarray(X), None
    observed = ~np.isnan(X)
    return np.where(observed, X, X.dtype.type(0)), observed


def table(X: Any) -> None:
    """Refuse what is no table of real numbers; for data that was refused in other words.

    Some of the wording is what scikit-learn's own checks of estimators look for.
    """
    try:
        shape = np.shape(X)
    except ValueError:
        raise ValueError("X must have rows of one length; got some of different lengths.") from None
    if len(shape) != 2:
        raise ValueError(
            f"X must have two dimensions, rows and features; got the shape {shape}. Reshape your "
            "data by .reshape(1, -1) if it is one row, by .reshape(-1, 1) if it is one feature."
        )
    if shape[0] == 0:
        raise ValueError(f"X must have at least one row; got the shape {shape}.")
    if shape[1] == 0:
        raise ValueError(
            f"X must have features; got 0 feature(s) (shape={shape}) while a minimum of 1 is "
            "required."
        )
    for value in np.asarray(X, dtype=object).flat:
        if isinstance(value, Complex) and not isinstance(value, Real):
            raise ValueError(f"X must hold real numbers; got {value}: Complex data not supported.")
        if isinstance(value, str | bytes):
            try:
                value = float(value)
            except ValueError:
                raise ValueError(f"X must hold numbers; got {value!r}.") from None
        if isinstance(value, Real) and abs(value) == np.inf:
            raise ValueError(f"X must be finite, or NaN where a value is missing; got {value}.")


def no_dates(X: Any) -> None:
    """Refuse dates and durations, which NumPy would turn into numbers of its own choice."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise ValueError(f"X must hold numbers; got {X.dtype}.")


def extremes(X: NDArray[np.floating]) -> tuple[float, float]:
    """The least and the largest number, infinite the wrong way round if there is none."""
    least = np.fmin.reduce(X, axis=None, initial=np.inf)
    return float(least), float(np.fmax.reduce(X, axis=None, initial=-np.inf))


def moderate(least: float, largest: float) -> None:
    """Refuse numbers whose squares cannot be summed."""
    size = max(largest, -least)
    if size > LARGEST:
        raise ValueError(f"X must hold numbers of at most {LARGEST:g} in size; got {size:g}.")


def varying(least: float, largest: float, n_values: int) -> None:
    """Refuse data with nothing to learn from: no observed value, or the same one everywhere; or
    values whose squares are all taken for zero."""
    if least > largest:
        raise ValueError(f"X must have an observed value; got {n_values} missing ones.")
    if (n_values > 1 or least == 0) and least == largest:
        raise ValueError(f"X must not be constant; got {least:g} everywhere.")
    size = max(largest, -least)
    if 0 < size < 1 / LARGEST:
        raise ValueError(
            f"X must hold a number of at least {1 / LARGEST:g} in size; got at most {size:g}."
        )


def binary(X: NDArray[np.floating], otherwise: str) -> None:
    """Refuse data other than 0, 1 and missing; `otherwise` names the way out."""
    wrong = (X != 0) & (X != 1) & ~np.isnan(X)
    if wrong.any():
        raise ValueError(f"X must hold only 0, 1 and NaN (or {otherwise}); got {X[wrong][0]:g}.")


def given_parameters(
    defaults: Any, given: Mapping[str, Any], limits: Mapping[str, tuple[float, float]]
) -> Any:
    """`defaults` with the fields in `given` replaced, each of the right shape and range.

    `limits` are those of the model, besides those that hold for all.
    """
    values = defaults._asdict()
    for name, value in given.items():
        choice("init's keys", name, list(values))
        try:
            array = np.array(value, np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"init[{name!r}] must hold numbers; got {value!r}.") from None
        shape = values[name].shape
        if name == "activation_probs" and array.ndim == 0:
            array = np.full(shape, array)
        if array.shape != shape:
            raise ValueError(f"init[{name!r}] must have the shape {shape}; got {array.shape}.")
        if not np.isfinite(array).all():
            raise ValueError(f"init[{name!r}] must be finite; got {array[~np.isfinite(array)][0]}.")
        least, most = limits.get(name, (-np.inf, np.inf))
        if not ((array >= least) & (array <= most)).all():
            raise ValueError(
                f"init[{name!r}] must lie between {least:g} and {most:g}; got {array}."
            )
        if name == "activation_probs" and not ((array > 0) & (array < 1)).all():
            raise ValueError(f"init[{name!r}] must lie above 0 and below 1; got {array}.")
        if name == "noise_variance" and not array > 0:
            raise ValueError(f"init[{name!r}] must be positive; got {array}.")
        if name == "slab_covariance":
            if array.ndim == 2 and not np.allclose(array, array.T):
                raise ValueError(f"init[{name!r}] must be symmetric; got {array}.")
            smallest = np.linalg.eigvalsh(array).min() if array.ndim == 2 else array.min()
            if not smallest > 0:
                raise ValueError(f"init[{name!r}] must be positive definite; got {array}.")
        values[name] = array
    return type(defaults)(**values)
