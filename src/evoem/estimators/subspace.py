"""The scikit-learn face of spike-and-slab coding with subspaces: `SubspaceCoding`."""

from typing import Any

from evoem import em, validation
from evoem.estimators.base import ATTRIBUTES, COMMON, EEMEstimator
from evoem.models import SubspaceModel


class SubspaceCoding(EEMEstimator):
    """Spike-and-slab coding whose latents add several patterns each, in random amounts.

    A latent is a mean and a few directions in which data differ from it, all switched on and off
    together: where latents exclude each other, a mixture of Gaussians of low rank. Learning starts
    from clusters of the data and their principal directions.

    Parameters
    ----------
    {common}
    rank : int, default=2
        The most directions a latent may have. Fewer are taken where data do not bear more.

    Attributes
    ----------
    components_ : ndarray of shape (n_patterns, n_features)
        The patterns of all latents, one after the other, the mean of each first.
    groups_ : ndarray of shape (n_latents + 1,)
        Those of latent h are `components_[groups_[h]:groups_[h + 1]]`.
    activation_probs_ : ndarray of shape (n_latents,)
        Prior probability of each latent.
    noise_variance_ : float
        Variance of the noise.
    slab_means_, slab_covariance_ : ndarrays of shape (n_patterns,)
        Mean and variance of the amount of each pattern.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import SubspaceCoding
    >>> rng = np.random.default_rng(0)
    >>> planes = rng.normal(size=(3, 2, 6))
    >>> kinds = rng.integers(3, size=500)
    >>> X = 9 * np.eye(3, 6)[kinds] + np.einsum("ni,nid->nd", rng.normal(size=(500, 2)),
    ...                                         planes[kinds]) + 0.1 * rng.normal(size=(500, 6))
    >>> model = SubspaceCoding(n_latents=3, tol=1e-3, random_state=1).fit(X)
    >>> round(model.noise_variance_, 2)
    0.01
    >>> model.transform(X).round().sum(1).mean().item()
    1.0
    """

    def __init__(
        self,
        n_latents: int = 8,
        *,
        rank: int = 2,
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
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_latents = n_latents
        self.rank = rank
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
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    _structure = ("n_latents", "rank")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.integer("rank", self.rank, 0)

    def _make_model(self) -> SubspaceModel:
        return SubspaceModel(self.rank)


SubspaceCoding.__doc__ = (SubspaceCoding.__doc__ or "").format(common=COMMON, attributes=ATTRIBUTES)
