"""The estimator of spike-and-slab coding with subspaces: `SubspaceCoding`."""

from dataclasses import KW_ONLY, dataclass

from evoem import validation
from evoem.estimators.base import EEMEstimator
from evoem.estimators.docstrings import documented
from evoem.models import SubspaceModel


@documented
@dataclass(eq=False, repr=False)
class SubspaceCoding(EEMEstimator):
    """Spike-and-slab coding in which each latent adds several patterns, with Gaussian amplitudes.

    A latent has a mean and a few directions in which data differ from it, all switched on and off
    together. With one active latent per row this is a mixture of Gaussians of low rank. Learning
    starts from clusters of the data and their principal directions.

    Parameters
    ----------
    {n_latents}
    {common}
    rank : int, default=2
        Largest number of directions per latent; latents with little evidence get fewer.

    Attributes
    ----------
    components_ : ndarray of shape (n_patterns, n_features)
        The patterns of all latents, one after the other, the mean of each first.
    groups_ : ndarray of shape (n_latents + 1,)
        Latent h has the patterns `components_[groups_[h]:groups_[h + 1]]`.
    activation_probs_ : ndarray of shape (n_latents,)
        Prior probability of each latent.
    noise_variance_ : float
        Variance of the noise.
    slab_means_ : ndarray of shape (n_patterns,)
        Mean of the amplitude of each pattern.
    slab_covariance_ : ndarray of shape (n_patterns,)
        Its variance.
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

    _: KW_ONLY
    rank: int = 2

    _structure = ("n_latents", "rank")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.integer("rank", self.rank, 0)

    def _make_model(self) -> SubspaceModel:
        return SubspaceModel(int(self.rank))
