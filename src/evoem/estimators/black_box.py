"""The estimator of a user's own model: `BlackBox`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from evoem import em, validation
from evoem.black_box import parameters
from evoem.black_box.constraints import TRANSFORMS
from evoem.black_box.model import BlackBoxModel, BlackBoxParams
from evoem.black_box.specification import (
    LIBRARIES,
    Specification,
    build_model,
    makes_params,
)
from evoem.estimators.base import EEMEstimator
from evoem.estimators.docstrings import documented
from evoem.models.all_rows import AllRows
from evoem.runtime import archives, atomic_files
from evoem.runtime.communicator import Communicator

# Rows that a function of the user's makes the first parameters from.
MOST_EXAMPLES = 20_000


class LogJointEstimator(EEMEstimator):
    """Base of estimators with a log-joint, which subclasses define."""

    _model: BlackBoxModel

    def _specification(self) -> Specification:
        raise TypeError(f"{type(self).__name__} does not say what its log-joint is.")

    def _model_for(self, data: em.Data, comm: Communicator) -> BlackBoxModel:
        """The model, made again for every fit, from its data if `params` is a function."""
        specification = self._specification()
        params = specification.params
        if makes_params(specification):
            rng = np.random.default_rng(self._seed())
            params = params(self._examples(data, comm), self._n_latents, rng)
        self._model = build_model(specification, params)
        return self._model

    def _examples(self, data: em.Data, comm: Communicator) -> NDArray[np.floating]:
        """Rows of all processes, some if they are many, with NaN where values are missing."""
        rows = AllRows(data.X, data.observed, comm)
        numbers = np.arange(rows.n_rows)
        if rows.n_rows > MOST_EXAMPLES:
            rng = np.random.default_rng((self._seed(), rows.n_rows))
            numbers = np.sort(rng.choice(rows.n_rows, MOST_EXAMPLES, replace=False))
        X, seen = rows.take(numbers)
        return np.where(seen, X, np.nan).astype(data.X.dtype)

    def _make_model(self) -> BlackBoxModel:
        return self._model

    def _take(self, params: BlackBoxParams) -> None:
        self.params_ = self._model.user_params(params)
        self.activation_probs_ = params.activation_probs

    def save_params(self, path: str | Path, *, force: bool = False) -> None:
        """Write the learnt parameters to a NumPy file (.npz), whole or not at all.

        Parameters
        ----------
        path : str or Path
            The file to write.
        force : bool, default=False
            Replace an existing file.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evoem import BlackBox
        >>> def log_joint(params, X, states):
        ...     return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)
        >>> X = np.array([[5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
        >>> model = BlackBox(log_joint, {"W": X[:2]}, n_latents=2, update=False, tol=1e-3).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_params(Path(folder) / "model.npz")
        ...     loaded = model.load_params(Path(folder) / "model.npz")
        >>> np.array_equal(loaded["W"], model.params_["W"])
        True
        """
        check_is_fitted(self)
        values = self._params.values
        atomic_files.write_whole(Path(path), lambda file: np.savez(file, **values), force=force)

    def load_params(self, path: str | Path) -> Any:
        """Parameters that `save_params` wrote, in the form of `params`, to start another fit from.

        If `params` is a function, they have the form of those that `fit` has learnt.

        Parameters
        ----------
        path : str or Path
            A file that `save_params` has written.

        Returns
        -------
        params : dict, NamedTuple, list, tuple, pytree or torch.nn.Module
            In the form, and with the array types, of `params`.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evoem import BlackBox
        >>> def log_joint(params, X, states):
        ...     return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)
        >>> X = np.array([[5.0, 0.0], [0.0, 5.0], [5.0, 5.0]])
        >>> model = BlackBox(log_joint, {"W": X[:2]}, n_latents=2, update=False, tol=1e-3).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_params(Path(folder) / "model.npz")
        ...     loaded = model.load_params(Path(folder) / "model.npz")
        >>> again = BlackBox(log_joint, loaded, n_latents=2, update=False, tol=1e-3).fit(X)
        >>> again.score(X) == model.score(X)
        True
        """
        specification = self._specification()
        template = specification.params
        if makes_params(specification):
            check_is_fitted(self)
            template = self.params_
        values = archives.read_arrays(Path(path))
        return parameters.unflatten(template, parameters.matching(template, values, str(path)))


# A dataclass takes the fields of its last base first: `n_latents` is the third of the parameters
# that can be given by position.
@documented
@dataclass(eq=False, repr=False)
class BlackBox(LogJointEstimator, Specification):
    """Any model with binary latents, given by its joint probability log p(s, x).

    Parameters
    ----------
    log_joint : callable
        The log-joint in one of two forms, which are told apart by the names of its parameters; -inf
        for what is impossible. `log_joint(params, x, observed, state)` returns a number for one row
        and one state, and is compiled by Numba: x is (d,), zero where `observed`, (d,), is False;
        `state` is (h,) and boolean. If the last parameter is called `active` it is passed the
        numbers of the active latents instead, in ascending order, which is faster if few of many
        latents are active. Or vectorised, in NumPy, PyTorch or JAX: `log_joint(params, X, states)`
        returns (n, s) for arrays (n, d) and (n, s, h), the latter zeros and ones of the type of X.
        Only with a further parameter `observed`, (n, d), can values be missing.
    params : dict, NamedTuple, list, tuple, pytree or torch.nn.Module; or a callable
        Initial parameters, numbers and arrays, nested in any way; or a function `params(X,
        n_latents, rng)` that makes them from at most 20,000 random rows X, with NaN for missing
        values. All functions get parameters in this form, except that a compiled `log_joint` gets
        NamedTuples for dicts: `params.W`. Values that depend on others, such as a Gram matrix, can
        be among them if `update` recomputes them: once per iteration.
    {n_latents}
    statistics : callable or None, default=None
        The first half of the M-step: `statistics(params, X, observed, states, weights)` returns a
        dict of arrays that are sums over rows, for X (n, d), states (n, s, h) and their posterior
        weights (n, s).
    update : callable, None or False, default=None
        The second half: `update(params, statistics)` returns the new parameters. If both are None
        parameters follow the gradient of the bound; they must then be arrays of PyTorch or JAX, or
        a module. False keeps the parameters fixed.
    constraints : dict or None, default=None
        Constraints for gradients by names of parameters: "positive", "unit" (between 0 and 1) or
        "simplex" (the last axis sums to one). Names of nested parameters are joined by dots.
    optimizer : callable, optax.GradientTransformation or None, default=None
        A class or function that makes a `torch.optim.Optimizer` from a list of parameters, or an
        optax optimiser. None is Adam with a learning rate of 0.01. With `batch_size` there is a
        step after each batch; otherwise only steps that do not lower the bound are taken.
    mean : callable or None, default=None
        `mean(params, states)` of shape (n, s, d): the mean of the data given the states (n, s, h),
        for `reconstruct`. None integrates the joint over each value, which takes longer.
    sampler : callable or None, default=None
        `sampler(params, n, rng)`, which draws data (n, d) and states (n, h), for `sample`.
    log_constant : callable or None, default=None
        `log_constant(params, X, observed)` of shape (n,): terms of the log-joint that do not depend
        on the state, which the fitness of parents leaves out (the paper's app:lpj). None is zero.
    compiled : bool, default=True
        False runs a `log_joint` of one state as plain Python, and one of JAX without `jax.jit`.
    prepare_rows : callable or None, default=None
        `prepare_rows(params, X, observed)` of shape (n, e), in NumPy, which replaces x for a
        `log_joint` of one state: what all states of a row need, such as products with a dictionary,
        is then computed once per row and iteration.
    vectorized : bool or None, default=None
        Whether `log_joint` takes many states; None goes by its parameters.
    library : {"numpy", "torch", "jax"} or None, default=None
        Library of a vectorised `log_joint`; None is that of the arrays in `params`.
    {common}

    Attributes
    ----------
    params_ : dict, NamedTuple, list, tuple, pytree or torch.nn.Module
        The learnt parameters, in the form of `params`.
    activation_probs_ : ndarray of shape (n_latents,)
        Posterior means of the latents, averaged over the data.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import BlackBox
    >>> def log_joint(params, X, states):  # x ~ N(W s, 1), s_h ~ Bernoulli(1/2)
    ...     return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)
    >>> def statistics(params, X, observed, states, weights):
    ...     s = np.einsum("ns,nsh->nh", weights, states)
    ...     return {"sx": s.T @ X, "ss": np.einsum("ns,nsh,nsg->hg", weights, states, states)}
    >>> def update(params, sums):
    ...     return {"W": np.linalg.solve(sums["ss"], sums["sx"])}
    >>> rng = np.random.default_rng(0)
    >>> W = np.array([[5.0, 5, 0, 0], [0, 0, 5, 5]])
    >>> X = rng.integers(0, 2, (300, 2)) @ W + rng.normal(size=(300, 4))
    >>> model = BlackBox(log_joint, {"W": X[:2]}, n_latents=2, statistics=statistics,
    ...                  update=update, tol=1e-3, random_state=0).fit(X)
    >>> np.allclose(np.sort(model.params_["W"].round(), axis=0), np.sort(W, axis=0))
    True
    """

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.function("log_joint", self.log_joint)
        for name in ("statistics", "mean", "sampler", "log_constant", "prepare_rows"):
            if getattr(self, name) is not None:
                validation.function(name, getattr(self, name))
        if self.update is not None and self.update is not False and not callable(self.update):
            raise ValueError(f"update must be callable, None or False; got {self.update!r}.")
        if callable(self.update) != (self.statistics is not None):
            given, other = ("update", "statistics")[:: 1 if callable(self.update) else -1]
            raise ValueError(f"{other} must be given together with {given}; got None.")
        validation.boolean("compiled", self.compiled)
        if self.vectorized is not None:
            validation.boolean("vectorized", self.vectorized)
        if self.library is not None:
            validation.choice("library", self.library, LIBRARIES)
        if self.constraints is not None and not isinstance(self.constraints, Mapping):
            raise ValueError(
                f"constraints must be a dict by parameters' names; got {self.constraints!r}."
            )
        for name, constraint in (self.constraints or {}).items():
            validation.choice(f"constraints[{name!r}]", constraint, TRANSFORMS)

    def _specification(self) -> Specification:
        return self
