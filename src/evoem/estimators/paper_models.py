"""Estimators of the paper's models: `NoisyOr`, `BinarySparseCoding`, `SpikeSlabCoding`."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evoem import em, validation
from evoem.estimators.base import EEMEstimator
from evoem.estimators.docstrings import documented
from evoem.models import BinarySparseCodingModel, NoisyOrModel, SpikeSlabModel, by_feature
from evoem.models.all_rows import AllRows
from evoem.models.linear import LinearModel
from evoem.runtime.communicator import Communicator


@dataclass(eq=False, repr=False)
class _PaperEstimator(EEMEstimator):
    """Base of the estimators of the paper's three models."""

    _: KW_ONLY
    init: str | Mapping[str, Any] = "mean"
    updates: str = "monotone"

    _model: ClassVar[type[LinearModel] | type[NoisyOrModel]]
    _limits: ClassVar[Mapping[str, tuple[float, float]]] = {}  # of given parameters

    def _model_options(self) -> dict[str, Any]:
        choices = self._model.choices
        return {
            "init": choices["init"][0] if isinstance(self.init, Mapping) else self.init,
            "updates": self.updates,
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.init, Mapping):
            validation.choice("init", self.init, self._model.choices["init"])

    def _initial_params(self, model: Any, data: em.Data, comm: Communicator) -> Any:
        if not isinstance(self.init, Mapping):
            return None
        rng = np.random.default_rng(self._seed())
        defaults = model.initialize(data.X, data.observed, self._n_latents, rng, comm)
        given = validation.given_parameters(defaults, self.init, self._limits)
        return model.allowed(given, data.X, data.observed, comm)


class _LinearEstimator(_PaperEstimator):
    """Base of the estimators of the two linear models."""

    _model: ClassVar[type[LinearModel]]

    def _model_options(self, by_feature: bool = False) -> dict[str, Any]:
        return super()._model_options() | {"by_feature": by_feature}

    def _make_model(self, by_feature: bool = False) -> LinearModel:
        return self._model(**self._model_options(by_feature))

    def _model_for(self, data: em.Data, comm: Communicator) -> LinearModel:
        """The model, learnt feature by feature where that pays."""
        rows = AllRows(data.X, data.observed, comm)
        n_rows, n_features = rows.n_rows, data.X.shape[1]
        missing = 1 - rows.counts().sum() / (n_rows * n_features)
        pays = by_feature.pays(missing, n_rows, n_features, self._n_latents, self._n_parts(n_rows))
        return self._make_model(pays and self.updates == "monotone")


@documented
@dataclass(eq=False, repr=False)
class NoisyOr(_PaperEstimator):
    """Noisy-OR Bayes net: binary data, in which active latents turn features on.

    Parameters
    ----------
    {n_latents}
    {common}
    init : {"random", "data"} or dict, default="random"
        Initial parameters: weights uniform on [0, 1], as in the paper, or random data points. A
        dict gives some or all of `components` and `activation_probs`.
    {updates}
    min_activation_prob : float, default=1e-08
        Lower limit of activation probabilities; 1 / n_latents keeps all latents in use.
    binarize : float or None, default=None
        Threshold: values above it become 1, others 0. With None data must be 0, 1 or NaN.

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

    _: KW_ONLY
    init: str | Mapping[str, Any] = "random"
    min_activation_prob: float = 1e-8
    binarize: float | None = None

    _model = NoisyOrModel
    _limits = {"components": (0.0, 1.0)}  # noqa: RUF012 - nothing changes it

    def _make_model(self) -> NoisyOrModel:
        return NoisyOrModel(
            **self._model_options(),
            min_activation_prob=self.min_activation_prob,
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


@documented
@dataclass(eq=False, repr=False)
class BinarySparseCoding(_LinearEstimator):
    """Binary sparse coding: data are sums of the active dictionary entries, plus noise.

    Parameters
    ----------
    {n_latents}
    {common}
    init : {"mean", "data"} or dict, default="mean"
        Initial dictionary: the mean of the data plus noise, as in the paper, or random data points.
        A dict gives some or all of `components`, `activation_probs` and `noise_variance`.
    {linear_updates}

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


@documented
@dataclass(eq=False, repr=False)
class SpikeSlabCoding(_LinearEstimator):
    """Spike-and-slab sparse coding: sums of few dictionary entries with Gaussian amplitudes.

    Parameters
    ----------
    {n_latents}
    {common}
    init : {"mean", "data", "authors"} or dict, default="mean"
        Initial parameters: the mean of the data plus noise, as in the paper; random data points; or
        as in the programs of the paper's authors, whose `slab_means` are standard normal. A dict
        gives some or all of `components`, `activation_probs`, `noise_variance`, `slab_means` and
        `slab_covariance`.
    {linear_updates}
    slab : {"diagonal", "full", "fixed"}, default="diagonal"
        Covariance of the amplitudes: learnt as a diagonal or a full matrix, or fixed (at one,
        unless `init` gives it).
    learn_slab_means : bool, default=True
        Whether the means of the amplitudes are learnt or fixed (at one, unless `init` gives them).

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
    slab_covariance_ : ndarray of shape (n_latents,), or (n_latents, n_latents) if full
        Their covariance, or its diagonal. If means and covariance are learnt, amplitudes are scaled
        to a second moment of one.
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

    _: KW_ONLY
    slab: str = "diagonal"
    learn_slab_means: bool = True

    _model = SpikeSlabModel
    _structure = ("n_latents", "slab")

    def _model_options(self, by_feature: bool = False) -> dict[str, Any]:
        return super()._model_options(by_feature) | {
            "slab": self.slab,
            "learn_slab_means": self.learn_slab_means,
        }
