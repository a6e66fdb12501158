"""Base class of the estimators, with the interface of scikit-learn.

They only store parameters and results: `evoem.em` and `evoem.models` do the computing.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from evoem import checkpoints, em, inference, streams, validation
from evoem.checkpoints import DEFAULT_EVERY
from evoem.errors import numbered_rows
from evoem.estimators.pickles import VersionedPickles
from evoem.evolution import evolution_for
from evoem.models import Model
from evoem.runtime.communicator import ALONE, Communicator, any_of
from evoem.runtime.cores import threads_of
from evoem.stopping import asks_to_stop

LARGEST_SEED = 2**31 - 1

NOTHING_BEFORE: dict[str, Any] = {
    name: np.empty(0) for name in ("free_energy", "seconds", "states_evaluated", "states_replaced")
}


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """If a fit fails or is interrupted, the estimator keeps what it had learnt before."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


@dataclass(eq=False, repr=False)
class EEMEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, VersionedPickles):
    """Base class of the estimators; subclasses define the model.

    Its fields are the parameters, which are stored as given and checked by `fit`, as scikit-learn
    expects.
    """

    n_latents: int = 8
    _: KW_ONLY
    n_states: int | str | None = None
    n_parents: int | None = None
    n_children: int | None = None
    n_generations: int = 2
    parents: str = "fit"
    mutation: str = "uniform"
    crossover: bool = False
    max_iter: int = 200
    tol: float = 1e-4
    batch_size: int | None = None
    warm_start: bool = False
    keep_states: bool = True
    n_jobs: int | None = None
    random_state: Any = None
    callback: em.Callback | None = None
    verbose: int = 0

    # What a warm start cannot change.
    _structure: ClassVar[tuple[str, ...]] = ("n_latents",)

    def _make_model(self) -> Model:
        raise TypeError(f"{type(self).__name__} does not say what its model is.")

    def _model_for(self, data: em.Data, comm: Communicator) -> Model:
        """The model for these data, and those of other processes."""
        return self._make_model()

    def _initial_params(self, model: Any, data: em.Data, comm: Communicator) -> Any:
        """Initial parameters; None if the model makes them."""
        return None

    def _check_parameters(self) -> None:
        """Check all parameters, before any data is touched."""
        self._n_latents = validation.integer("n_latents", self.n_latents, 1)
        self._n_states = validation.n_states(self.n_states, self._n_latents)
        self._evolution = evolution_for(
            n_latents=self._n_latents,
            n_states=self._n_states,
            n_parents=self.n_parents,
            n_children=self.n_children,
            n_generations=self.n_generations,
            parents=self.parents,
            mutation=self.mutation,
            crossover=self.crossover,
        )
        validation.integer("max_iter", self.max_iter, 1)
        validation.real("tol", self.tol, 0.0)
        if self.batch_size is not None:
            validation.integer("batch_size", self.batch_size, 1)
        validation.boolean("warm_start", self.warm_start)
        validation.boolean("keep_states", self.keep_states)
        validation.integer("verbose", self.verbose, 0)
        validation.callback(self.callback)
        validation.jobs(self.n_jobs)
        validation.random_state(self.random_state)
        if self.warm_start and hasattr(self, "state_"):
            for name, before in self._structure_learnt.items():
                validation.unchanged(name, getattr(self, name), before)

    def _read(self, X: Any, reset: bool, learning: Communicator | None = None) -> em.Data:
        """Checked data with zeros for missing values, and the mask of observed ones.

        With `learning`, the data are to be learnt from, together with rows of other processes.
        """
        few = learning is not None and learning.size > 1  # a process may have no rows
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        validation.no_dates(X)
        try:
            checked = validate_data(
                self,
                X,
                reset=reset,
                dtype=(np.float64, np.float32),
                order="C",
                ensure_all_finite="allow-nan",
                ensure_min_samples=0 if few else 1,
            )
        except ValueError:
            validation.table(X)
            raise
        least, largest = validation.extremes(checked)
        validation.moderate(least, largest)
        if learning is not None:
            everywhere = np.array([-least, largest, checked.size])
            learning.largest(everywhere)
            validation.varying(-everywhere[0], everywhere[1], int(everywhere[2]))
        return em.Data(*validation.split_missing(self._prepare_data(checked)))

    def _prepare_data(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        return X

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        checkpoint: str | Path | None = None,
        every: float = DEFAULT_EVERY,
        resume: bool = False,
        comm: Communicator = ALONE,
    ) -> Self:
        """Learn the model's parameters by evolutionary expectation maximisation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; missing values are NaN, or masked in a masked array. float32 data are processed in
            single precision, which is faster.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.
        checkpoint : str or Path, optional
            File that the fit is saved to, so that it can be resumed.
        every : float, default=60.0
            Seconds between checkpoints, at least; one is always written at the end.
        resume : bool, default=False
            Resume from the checkpoint if it exists: the result is that of an uninterrupted fit, to
            the bit. Data and parameters must be the same, except for `max_iter`, `tol`, `n_jobs`,
            `callback` and `verbose`.
        comm : Communicator, optional
            Other processes, such as `evoem.distributed.world()`. X then has the rows of this
            process, possibly none, in the order of the processes. All of them learn the same, to
            the bit, as one process with all rows.

        Returns
        -------
        self : object
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> np.abs(model.components_.round())
        array([[9., 9., 0.],
               [0., 0., 9.]])
        """
        validation.communicator(comm)
        with unchanged_on_error(self):
            infos = self._fit(X, checkpoint, every, resume, comm)
        if self.tol > 0 and not self.converged_ and len(infos) == self.max_iter:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} iterations: "
                "raise max_iter or tol, or set tol=0 to run a fixed number.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _fit(
        self,
        X: ArrayLike,
        checkpoint: str | Path | None,
        every: float,
        resume: bool,
        comm: Communicator,
    ) -> list[em.StepInfo]:
        self._check_parameters()
        self._agreed_seed: int | None = None
        if checkpoint is not None:
            path, every = checkpoints.checked(checkpoint, every, resume)
            if path.exists():
                self._agreed_seed = checkpoints.read_seed(path)
        if self._agreed_seed is None and comm.size > 1:
            self._agreed_seed = comm.collect(self._seed())[0]
        again = self.warm_start and hasattr(self, "state_")
        data = self._read(X, reset=not again, learning=comm)
        model = self._model_for(data, comm)
        n_jobs = threads_of(self.n_jobs, comm)
        state, before = self._start(model, data, n_jobs, comm)
        n_rows = sum(comm.collect(len(data)))
        n_parts = self._n_parts(n_rows)
        state, infos = em.run(
            model,
            data,
            state,
            self._evolution,
            max_iter=self.max_iter,
            convergence=em.Convergence(self.tol),
            callback=partial(self._report, comm, n_rows),
            n_parts=n_parts,
            n_jobs=n_jobs,
            checkpoint=checkpoint,
            every=every,
            resume=resume,
            comm=comm,
        )
        self._agreed_seed = None
        self._learnt(data, state, infos, before)
        return infos

    def _n_parts(self, n_rows: int) -> int:
        """Number of mini-batches for so many rows."""
        return 1 if self.batch_size is None else -(-n_rows // int(self.batch_size))

    def _learnt(
        self,
        data: em.Data,
        state: em.EMState,
        infos: list[em.StepInfo],
        before: dict[str, Any],
    ) -> None:
        """Set the learnt attributes, from a run of the functional core."""
        self._keep_rows(data, state)
        self._structure_learnt = {name: getattr(self, name) for name in self._structure}
        full_batch = self.batch_size is None  # whose steps end in the canonical form already
        params = state.params
        self._params = params if full_batch else self._make_model().canonical(params)
        self._take(self._params)
        self.history_ = {
            name: np.concatenate([old, [getattr(info, name) for info in infos]])
            for name, old in before.items()
        }
        self.free_energies_ = self.history_.pop("free_energy")
        self.free_energy_ = float(self.free_energies_[-1]) if len(self.free_energies_) else -np.inf
        self.n_iter_ = len(self.free_energies_)
        self.converged_ = em.Convergence(self.tol)(list(self.free_energies_))

    def _keep_rows(self, data: em.Data, state: em.EMState) -> None:
        """Keep what was inferred about each row, unless `keep_states` is False."""
        self.state_, self._rows_seen = state, streams.row_keys(data.X, data.observed)
        if not (self.keep_states or self.warm_start):
            self._rows_seen = self._rows_seen[:0].copy()
            self.state_ = state._replace(
                states=state.states[:0].copy(),
                log_joints=state.log_joints[:0].copy(),
                statistics=(),
                current=False,
            )

    def adopt(self, data: em.Data, state: em.EMState, infos: list[em.StepInfo]) -> Self:
        """Take over the result of a run of the functional core, as if `fit` had made it.

        Parameters
        ----------
        data : evoem.em.Data
            The rows.
        state : evoem.em.EMState
            The state at the end of the run.
        infos : list of evoem.em.StepInfo
            What each of its iterations reported.

        Returns
        -------
        self : object
            The fitted estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding, em
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> infos = []
        >>> model = BinarySparseCoding(n_latents=2, max_iter=5, tol=0, callback=infos.append)
        >>> state = model.fit(X).state_
        >>> BinarySparseCoding(n_latents=2).adopt(em.Data(X), state, infos).n_iter_
        5
        """
        self._check_parameters()
        self.n_features_in_ = data.X.shape[1]
        self._learnt(data, state, infos, NOTHING_BEFORE)
        return self

    def _report(
        self, comm: Communicator, n_rows: int, info: em.StepInfo, state: em.EMState
    ) -> bool:
        if comm.rank == 0 and self.verbose and info.iteration % self.verbose == 0:
            sys.stderr.write(
                f"iteration {info.iteration}: bound {info.free_energy:.6g} per data point, "
                f"{info.states_replaced} states replaced, {info.seconds:.2f} s, "
                f"{n_rows / info.seconds:.0f} rows/s{comm.report()}\n"
            )
        return asks_to_stop(self.callback, info, state)

    def _start(
        self, model: Model, data: em.Data, n_jobs: int, comm: Communicator
    ) -> tuple[em.EMState, dict[str, Any]]:
        """The first state, and the history of the fit that is continued, if any."""
        if self.warm_start and hasattr(self, "state_"):
            old = self.state_
            keys = streams.row_keys(data.X, data.observed)
            (others,) = any_of(comm, not np.array_equal(self._rows_seen, keys))
            if not others and old.states.shape[1] == self._n_states:
                # Steps overwrite what they go on from: should this run fail, that is still here.
                own = old._replace(states=old.states.copy(), log_joints=old.log_joints.copy())
                return own, {**self.history_, "free_energy": self.free_energies_}
            params = old.params
        else:
            params = self._initial_params(model, data, comm)
        state = em.init(
            model,
            data,
            n_states=self._n_states,
            n_latents=self._n_latents,
            params=params,
            seed=self._seed(),
            n_jobs=n_jobs,
            comm=comm,
        )
        return state, NOTHING_BEFORE

    def _seed(self) -> int:
        agreed = getattr(self, "_agreed_seed", None)
        if agreed is not None and not isinstance(self.random_state, Integral):
            return int(agreed)
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(LARGEST_SEED))
        return int(check_random_state(self.random_state).randint(LARGEST_SEED))

    def _take(self, params: Any) -> None:
        """Set the learnt attributes that are parameters."""
        for name, value in params._asdict().items():
            if value is None:  # what only images have
                continue
            setattr(self, name + "_", float(value) if value.ndim == 0 else value)

    @property
    def _n_features_out(self) -> int:
        return len(self.activation_probs_)

    def _states_of(self, data: em.Data) -> NDArray[np.uint64]:
        """States of each row: those of `fit` for rows it has seen; others are inferred."""
        keys, seen = streams.row_keys(data.X, data.observed), self._rows_seen
        kept = np.empty((len(keys), *self.state_.states.shape[1:]), np.uint64)
        new = np.ones(len(keys), np.bool_)
        if len(seen):
            order = np.argsort(seen, kind="stable")
            position = np.searchsorted(seen, keys, sorter=order)
            match = order[np.minimum(position, len(order) - 1)]
            new = seen[match] != keys
            kept[~new] = self.state_.states[match[~new]]
        if not new.any():
            return kept
        with numbered_rows(np.flatnonzero(new)):
            kept[new] = inference.infer(
                self._make_model(),
                data.take(new),
                self._params,
                self._evolution,
                n_states=self._n_states,
                seed=self.state_.seed,
                tol=self.tol or em.Convergence().tol,
                n_jobs=threads_of(self.n_jobs),
            ).states
        return kept

    def _fitted(self, X: Any) -> tuple[Any, ...]:
        """Arguments of `inference.bounds` and `estimate`, for the rows of X."""
        check_is_fitted(self)
        data = self._read(X, reset=False)
        options = {"n_jobs": threads_of(self.n_jobs)}
        return (self._make_model(), data, self._params, self._states_of(data)), options

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Posterior mean of the latents: of s, or of s⊙z for spike-and-slab coding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that `fit` has seen keep the states found there. For other rows E-steps are run
            with fixed parameters, until the bound of the row stops rising.

        Returns
        -------
        codes : ndarray of shape (n_samples, n_latents)
            In the precision of X.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> model.transform([[8.0, 9.0, 0.0], [8.0, 8.0, 9.0]]).round()
        array([[1., 0.],
               [1., 1.]])
        """
        arguments, options = self._fitted(X)
        codes = np.concatenate(inference.estimate(arguments[0].codes, *arguments, **options))
        return codes.astype(arguments[1].X.dtype)

    def reconstruct(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Posterior predictive mean of the data, which fills in missing values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            See `transform`. For a row with no observed value it is the mean of the prior.
        return_std : bool, default=False
            Also return the posterior standard deviation of the noise-free value. The variance of a
            new noisy observation is larger by `noise_variance_`.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_features)
            Estimates of the noise-free values, of observed values too.
        std : ndarray of shape (n_samples, n_features)
            Only if `return_std`.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> mean, std = model.reconstruct([[9.0, np.nan, 0.0]], return_std=True)
        >>> np.abs(mean.round())
        array([[9., 9., 0.]])
        """
        arguments, options = self._fitted(X)
        parts = inference.estimate(arguments[0].reconstruct, *arguments, **options)
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        dtype = arguments[1].X.dtype
        if return_std:
            return mean.astype(dtype), np.sqrt(variance).astype(dtype)
        return mean.astype(dtype)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """The lower bound on log p(x) of each row (eq:tvem_free_energy), for its observed values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            See `transform`.

        Returns
        -------
        bounds : ndarray of shape (n_samples,)
            In nats.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> usual, strange = model.score_samples([[9.0, 9.0, 0.0], [0.0, 9.0, 0.0]])
        >>> bool(usual > strange)
        True
        """
        arguments, options = self._fitted(X)
        return inference.bounds(*arguments, **options)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`: the bound per data point.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            See `transform`.
        y : None
            Ignored; for compatibility with scikit-learn's pipelines.

        Returns
        -------
        bound : float
            In nats; the higher, the better the model explains the data.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> round(model.score(X), 2)
        24.84
        """
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Draw data from the learnt model, with `random_state` as the seed.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Data, with the model's noise.
        states : bool ndarray of shape (n_samples, n_latents)
            The latents that they were drawn with.

        Examples
        --------
        >>> import numpy as np
        >>> from evoem import BinarySparseCoding
        >>> patterns = [[9.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]
        >>> X = np.repeat(patterns, 10, axis=0)
        >>> model = BinarySparseCoding(n_latents=2, max_iter=20, tol=0, random_state=2).fit(X)
        >>> drawn, states = model.sample(5)
        >>> drawn.shape, states.shape
        ((5, 3), (5, 2))
        """
        check_is_fitted(self)
        n_samples = validation.integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(self._seed())
        return self._make_model().sample(self._params, n_samples, rng)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
