"""The paper's models in the manner of scikit-learn: `NoisyOr`, `BinarySparseCoding`,
`SpikeSlabCoding`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoem import em, validation
from evoem.estimators.base import ATTRIBUTES, COMMON, EEMEstimator
from evoem.models import BinarySparseCodingModel, NoisyOrModel, SpikeSlabModel
from evoem.models.linear import LinearModel


class _BuiltInEstimator(EEMEstimator):
    """What the three models of the paper share."""

    _model: type[LinearModel] | type[NoisyOrModel]
    _limits: Mapping[str, tuple[float, float]] = {}  # of given parameters

    def __init__(
        self,
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
        init: str | Mapping[str, ArrayLike] = "mean",
        updates: str = "monotone",
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
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
        self.init = init
        self.updates = updates
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def _model_options(self) -> dict[str, Any]:
        choices = self._model.choices
        return {
            "init": choices["init"][0] if isinstance(self.init, Mapping) else self.init,
            "updates": validation.choice("updates", self.updates, choices["updates"]),
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.init, Mapping):
            validation.choice("init", self.init, self._model.choices["init"])

    def _initial_params(self, model: Any, data: em.Data) -> Any:
        if not isinstance(self.init, Mapping):
            return None
        rng = np.random.default_rng(self._seed())
        defaults = model.initialize(data.X, data.observed, self.n_latents, rng)
        given = validation.given_parameters(defaults, self.init, self._limits)
        return model.allowed(given, data.X, data.observed)


class NoisyOr(_BuiltInEstimator):
    """Noisy-OR Bayes net: binary data, each on-value caused by at least one active latent.

    Parameters
    ----------
    {common}
    min_activation_prob : float, default=1e-8
        Activation probabilities are kept at or above this; 1 / n_latents makes every latent take
        part.
    binarize : float or None, default=None
        Values above this become 1, others 0. None takes data of 0, 1 and NaN only.

    `init` is "random" (weights uniform on [0, 1], as in the paper), "data" (random data points) or
    a dict of `components` and `activation_probs`.

    Attributes
    ----------
    components_ : ndarray of shape (n_latents, n_features)
        Probability that an active latent turns a feature on.
    activation_probs_ : ndarray of shape (n_latents,)
        Prior probability of each latent.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import NoisyOr
    >>> X = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]] * 25)
    >>> model = NoisyOr(n_latents=2, n_states="all", tol=1e-3, random_state=1).fit(X)
    >>> model.reconstruct(np.array([[1, np.nan, 0, np.nan]])).round().astype(int)
    array([[1, 1, 0, 0]])
    """

    _model = NoisyOrModel

    def __init__(
        self,
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
        init: str | Mapping[str, ArrayLike] = "random",
        updates: str = "monotone",
        min_activation_prob: float = 1e-8,
        binarize: float | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_latents,
            n_states=n_states,
            n_parents=n_parents,
            n_children=n_children,
            n_generations=n_generations,
            parents=parents,
            mutation=mutation,
            crossover=crossover,
            max_iter=max_iter,
            tol=tol,
            batch_size=batch_size,
            init=init,
            updates=updates,
            warm_start=warm_start,
            n_jobs=n_jobs,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.min_activation_prob = min_activation_prob
        self.binarize = binarize

    _limits = {"components": (0.0, 1.0)}  # noqa: RUF012 - nothing changes it

    def _make_model(self) -> NoisyOrModel:
        return NoisyOrModel(
            **self._model_options(),
            min_activation_prob=validation.real(
                "min_activation_prob", self.min_activation_prob, 1e-8, 0.5
            ),
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.binarize is not None:
            validation.real("binarize", self.binarize, -np.inf)

    def _prepare_data(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        if self.binarize is not None:
            return np.where(np.isnan(X), X, np.greater(X, self.binarize)).astype(X.dtype)
        validation.binary(X, "set binarize to a threshold")
        return X


class BinarySparseCoding(_BuiltInEstimator):
    """Binary sparse coding: data are sums of dictionary entries that are on or off, plus noise.

    Parameters
    ----------
    {common}

    `init` is "mean" (the mean of the data plus noise, as in the paper), "data" (random data points)
    or a dict of `components`, `activation_probs` and `noise_variance`.

    Attributes
    ----------
    components_ : ndarray of shape (n_latents, n_features)
        The dictionary.
    activation_probs_ : ndarray of shape (n_latents,)
        Prior probability of the latents, the same for all.
    noise_variance_ : float
        Variance of the noise.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import BinarySparseCoding
    >>> rng = np.random.default_rng(0)
    >>> causes = rng.random((500, 3)) < 0.3
    >>> X = causes @ (5 * np.eye(3, 6)) + rng.normal(size=(500, 6))
    >>> model = BinarySparseCoding(n_latents=3, tol=1e-3, random_state=0).fit(X)
    >>> round(model.noise_variance_, 1)
    1.0
    """

    _model = BinarySparseCodingModel

    def _make_model(self) -> BinarySparseCodingModel:
        return BinarySparseCodingModel(**self._model_options())


class SpikeSlabCoding(_BuiltInEstimator):
    """Spike-and-slab sparse coding: few dictionary entries are active, each with an amplitude.

    Parameters
    ----------
    {common}
    slab : {{"diagonal", "full", "fixed"}}, default="diagonal"
        Covariance of the amplitudes: learnt as a diagonal or a full matrix, or held fixed (at one,
        unless `init` gives it).
    learn_slab_means : bool, default=True
        Whether the amplitudes' means are learnt; else they are held fixed (at one, unless `init`
        gives them).

    `init` is "mean" (the mean of the data plus noise, as in the paper), "data" (random data points)
    or a dict of `components`, `activation_probs`, `noise_variance`, `slab_means` and
    `slab_covariance`.

    Attributes
    ----------
    components_ : ndarray of shape (n_latents, n_features)
        The dictionary.
    activation_probs_ : ndarray of shape (n_latents,)
        Prior probability of each latent.
    noise_variance_ : float
        Variance of the noise.
    slab_means_ : ndarray of shape (n_latents,)
        Means of the amplitudes.
    slab_covariance_ : ndarray of shape (n_latents, n_latents) if full, else (n_latents,)
        Their covariance, or its diagonal. Where means and covariance are learnt, the scale between
        amplitudes and dictionary is fixed by a second moment of one.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import SpikeSlabCoding
    >>> rng = np.random.default_rng(0)
    >>> amplitudes = (rng.random((500, 3)) < 0.3) * rng.normal(3, 1, size=(500, 3))
    >>> X = amplitudes @ (2 * np.eye(3, 6)) + rng.normal(size=(500, 6))
    >>> model = SpikeSlabCoding(n_latents=3, tol=1e-3, random_state=0).fit(X)
    >>> model.transform(X[:1]).shape
    (1, 3)
    """

    _model = SpikeSlabModel

    def __init__(
        self,
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
        init: str | Mapping[str, ArrayLike] = "mean",
        updates: str = "monotone",
        slab: str = "diagonal",
        learn_slab_means: bool = True,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_latents,
            n_states=n_states,
            n_parents=n_parents,
            n_children=n_children,
            n_generations=n_generations,
            parents=parents,
            mutation=mutation,
            crossover=crossover,
            max_iter=max_iter,
            tol=tol,
            batch_size=batch_size,
            init=init,
            updates=updates,
            warm_start=warm_start,
            n_jobs=n_jobs,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.slab = slab
        self.learn_slab_means = learn_slab_means

    _structure = ("n_latents", "slab")

    def _make_model(self) -> SpikeSlabModel:
        return SpikeSlabModel(
            slab=validation.choice("slab", self.slab, self._model.choices["slab"]),
            learn_slab_means=validation.boolean("learn_slab_means", self.learn_slab_means),
            **self._model_options(),
        )


for _estimator in (NoisyOr, BinarySparseCoding, SpikeSlabCoding):
    _estimator.__doc__ = (_estimator.__doc__ or "").format(common=COMMON, attributes=ATTRIBUTES)
