"""The scikit-learn face of a user's own model: `BlackBox`."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evoem import em, validation
from evoem.black_box import parameters
from evoem.black_box.array_libraries import JaxArrays, Library, NumpyArrays, TorchArrays, library_of
from evoem.black_box.constraints import TRANSFORMS
from evoem.black_box.gradient import Ascent, OptaxOptimizer, TorchOptimizer
from evoem.black_box.many_states import ManyStates
from evoem.black_box.model import BlackBoxModel, BlackBoxParams, Functions
from evoem.black_box.one_state import OneState
from evoem.estimators.base import ATTRIBUTES, COMMON, EEMEstimator
from evoem.runtime import atomic_files

LIBRARIES = ("numpy", "torch", "jax")


def is_vectorized(log_joint: Callable[..., Any]) -> bool:
    """Whether a log-joint is one of many states, by the names or the number of its parameters."""
    names = list(inspect.signature(getattr(log_joint, "py_func", log_joint)).parameters)
    if not {"state", "active", "states"}.isdisjoint(names):
        return "states" in names
    if len(names) in (3, 4):
        return len(names) == 3
    raise ValueError(
        "log_joint must have the parameters (params, x, observed, state), or (params, X, states) "
        f"if it is vectorised; got ({', '.join(names)})."
    )


class BlackBox(EEMEstimator):
    """Any model with binary latents, given only its joint probability log p(s, x).

    Parameters
    ----------
    log_joint : callable
        `log_joint(params, x, observed, state)` of one row and one state, compiled by Numba: x is
        (d,), zero where `observed`, (d,), is False; `state` is (h,) and boolean; a number comes
        back. A last parameter called `active` is given the numbers of the active latents instead,
        ascending, which is faster where latents are many and few of them active. Or, vectorised,
        `log_joint(params, X, states)` of arrays (n, d) and (n, s, h), the latter zeros and ones of
        the type of X, which returns (n, s), in NumPy, PyTorch or JAX; with a further parameter
        `observed`, (n, d), it may be given missing values. -inf is the log-joint of what is
        impossible. Which of them it is, is told by its parameters' names.
    params : dict, NamedTuple, list, tuple, pytree or torch.nn.Module; or a callable
        Parameters to start from, numbers and arrays, nested in any way; or a function
        `params(X, n_latents, rng)` that makes them, with NaN in X where values are missing. All of
        the user's functions are given them in the same form, but where `log_joint` is compiled
        dicts are NamedTuples: `params.W`. What follows from others, such as a Gram matrix, may be
        among them where `update` makes it anew: it is then computed once per iteration.
    {common}
    statistics, update : callable or None, default=None
        The M-step: `statistics(params, X, observed, states, weights)` returns a dict of arrays that
        add over rows, for X (n, d), states (n, s, h) and their posterior weights (n, s), and
        `update(params, statistics)` the new parameters. Without them parameters follow the gradient
        of the bound, for which they must be arrays of PyTorch or JAX, or a module. `update=False`
        changes nothing.
    constraints : dict or None, default=None
        "positive", "unit" (between 0 and 1) or "simplex" (the last axis sums to one) by name of a
        parameter, for gradients. Names of nested parameters are joined by dots.
    optimizer : callable, optax.GradientTransformation or None, default=None
        A class or function that makes a `torch.optim.Optimizer` of a list of parameters, or an
        optax optimiser. None is Adam with a learning rate of 0.01. With `batch_size` there is a
        step after each batch; else only steps that do not lower the bound are taken.
    mean : callable or None, default=None
        `mean(params, states)` of shape (n, s, d): the mean of the data given the states (n, s, h),
        for `reconstruct`. None integrates the joint over each value, which takes longer.
    sampler : callable or None, default=None
        `sampler(params, n, rng)`, which draws data (n, d) and states (n, h), for `sample`.
    log_constant : callable or None, default=None
        `log_constant(params, X, observed)` of shape (n,): terms of the log-joint that no state
        changes, which the fitness of parents leaves out (the paper's app:lpj). None is zero.
    compiled : bool, default=True
        False runs a `log_joint` of one state as plain Python, and one of JAX without `jax.jit`.
    prepare_rows : callable or None, default=None
        `prepare_rows(params, X, observed)` of shape (n, e), in NumPy, which a `log_joint` of one
        state is given in place of x: what all states of a row need, such as the products of x
        with a dictionary, is then computed once per row and iteration.
    vectorized : bool or None, default=None
        Whether `log_joint` is one of many states; None tells by its parameters.
    library : {{"numpy", "torch", "jax"}} or None, default=None
        Of a vectorised `log_joint`; None is that of the arrays in `params`.

    Attributes
    ----------
    params_ : Any
        The learnt parameters, in the form of `params`.
    activation_probs_ : ndarray of shape (n_latents,)
        Mean of the latents over the data.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import BlackBox
    >>> def log_joint(params, X, states):  # x ~ N(W s, 1), s_h ~ Bernoulli(1/2)
    ...     return -0.5 * ((X[:, None] - states @ params["W"]) ** 2).sum(-1)
    >>> def statistics(params, X, observed, states, weights):
    ...     s = np.einsum("ns,nsh->nh", weights, states)
    ...     return {{"sx": s.T @ X, "ss": np.einsum("ns,nsh,nsg->hg", weights, states, states)}}
    >>> def update(params, sums):
    ...     return {{"W": np.linalg.solve(sums["ss"], sums["sx"])}}
    >>> rng = np.random.default_rng(0)
    >>> W = np.array([[5.0, 5, 0, 0], [0, 0, 5, 5]])
    >>> X = rng.integers(0, 2, (300, 2)) @ W + rng.normal(size=(300, 4))
    >>> model = BlackBox(log_joint, {{"W": X[:2]}}, n_latents=2, statistics=statistics,
    ...                  update=update, tol=1e-3, random_state=0).fit(X)
    >>> np.allclose(np.sort(model.params_["W"].round(), axis=0), np.sort(W, axis=0))
    True
    """

    def __init__(
        self,
        log_joint: Callable[..., Any],
        params: Any,
        n_latents: int = 8,
        *,
        n_states: int | str | None = None,
        n_parents: int | None = None,
        n_children: int | None = None,
        n_generations: int = 2,
        parents: str = "fit",
        mutation: str = "uniform",
        crossover: bool = False,
        max_iter: int = 200,
        tol: float = 1e-4,
        batch_size: int | None = None,
        statistics: Callable[..., Mapping[str, Any]] | None = None,
        update: Callable[..., Any] | bool | None = None,
        constraints: Mapping[str, str] | None = None,
        optimizer: Any = None,
        mean: Callable[..., Any] | None = None,
        sampler: Callable[..., tuple[Any, Any]] | None = None,
        log_constant: Callable[..., Any] | None = None,
        compiled: bool = True,
        prepare_rows: Callable[..., Any] | None = None,
        vectorized: bool | None = None,
        library: str | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
        self.log_joint = log_joint
        self.params = params
        self.n_latents = n_latents
        self.n_states = n_states
        self.n_parents = n_parents
        self.n_children = n_children
        self.n_generations = n_generations
        self.parents = parents
        self.mutation = mutation
        self.crossover = crossover
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.statistics = statistics
        self.update = update
        self.constraints = constraints
        self.optimizer = optimizer
        self.mean = mean
        self.sampler = sampler
        self.log_constant = log_constant
        self.compiled = compiled
        self.prepare_rows = prepare_rows
        self.vectorized = vectorized
        self.library = library
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    # ------------------------------------------------------------------------------ the model

    def _check_parameters(self) -> None:
        super()._check_parameters()
        optional = ("statistics", "mean", "sampler", "log_constant", "prepare_rows")
        for name in ("log_joint", *optional):
            value = getattr(self, name)
            if not callable(value) and (value is not None or name == "log_joint"):
                raise ValueError(f"{name} must be callable; got {value!r}.")
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

    def _model_for(self, data: em.Data) -> BlackBoxModel:
        """Made anew for every fit, from its data if `params` is a function."""
        params = self.params
        if callable(params) and not parameters.is_module(params):
            rng = np.random.default_rng(self._seed())
            shown = data.X
            if data.observed is not None:
                shown = np.where(data.observed, shown, shown.dtype.type(np.nan))
            params = params(shown, self.n_latents, rng)
        vectorized = self.vectorized
        if vectorized is None:
            vectorized = is_vectorized(self.log_joint)
        library = self._library(params, vectorized)
        log_joint: OneState | ManyStates
        if vectorized:
            if self.prepare_rows is not None:
                raise ValueError(
                    "prepare_rows must be None for a vectorised log_joint, which sees whole rows."
                )
            log_joint = ManyStates(self.log_joint, library)
        else:
            log_joint = OneState(self.log_joint, self.compiled, self.prepare_rows)
        functions = Functions(
            self.statistics,
            self.update if callable(self.update) else None,
            self.mean,
            self.sampler,
            self.log_constant,
        )
        self._model = BlackBoxModel(
            log_joint, params, library, functions, self._ascent(log_joint, library)
        )
        return self._model

    def _library(self, params: Any, vectorized: bool) -> Library:
        name = self.library or library_of(params)
        if not vectorized and name != "numpy":
            raise ValueError(
                f"log_joint must be vectorised, (params, X, states), for {name}; got one of a "
                "single state."
            )
        if name == "jax":
            return JaxArrays(self.compiled)
        return TorchArrays() if name == "torch" else NumpyArrays()

    def _ascent(self, log_joint: OneState | ManyStates, library: Library) -> Ascent | None:
        if self.update is not None:
            if self.constraints or self.optimizer is not None:
                raise ValueError(
                    "constraints and optimizer must be None where update is given: they are for "
                    "gradients."
                )
            return None
        if isinstance(log_joint, OneState) or not library.differentiates:
            raise ValueError(
                "update must be given, with statistics, for a log_joint of NumPy or Numba, which "
                "have no gradients; got None (use params of PyTorch or JAX, or update=False to "
                "leave them as they are)."
            )
        in_torch = isinstance(library, TorchArrays)
        given = self.optimizer
        if given is not None and not (callable(given) if in_torch else hasattr(given, "update")):
            what = "make one of torch.optim" if in_torch else "be one of optax"
            raise ValueError(f"optimizer must {what} for these params; got {given!r}.")
        make = TorchOptimizer if in_torch else OptaxOptimizer
        return Ascent(log_joint.gradient, make(self.optimizer), self.constraints or {})

    def _make_model(self) -> BlackBoxModel:
        return self._model

    def _take(self, params: BlackBoxParams) -> None:
        self.params_ = self._model.user_params(params)
        self.activation_probs_ = params.activation_probs

    # --------------------------------------------------------------------------- checkpoints

    def save_params(self, path: str | Path, *, force: bool = False) -> None:
        """Write the learnt parameters to a NumPy file (.npz), whole or not at all.

        Parameters
        ----------
        path : str or Path
        force : bool, default=False
            Replace an existing file.
        """
        check_is_fitted(self)
        values = self._params.values
        atomic_files.write_whole(Path(path), lambda file: np.savez(file, **values), force=force)

    def load_params(self, path: str | Path) -> Any:
        """Parameters that `save_params` wrote, in the form of `params`, to start another fit from.

        If `params` is a function, they are in the form of those that `fit` has learnt.

        Parameters
        ----------
        path : str or Path
        """
        template = self.params
        if callable(template) and not parameters.is_module(template):
            check_is_fitted(self)
            template = self.params_
        try:
            with Path(path).open("rb") as opened, np.load(opened) as file:
                values = {name: file[name] for name in file.files}
        except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
            raise atomic_files.FileError(
                f"{path} must be a file of parameters; {error}."
            ) from error
        return parameters.like(template, parameters.matching(template, values, str(path)))


BlackBox.__doc__ = (BlackBox.__doc__ or "").format(common=COMMON, attributes=ATTRIBUTES)
