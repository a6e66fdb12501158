"""Spike-and-slab sparse coding (eq:sssc_gen_model_prior): y ~ N(W (s⊙z), σ² 1), z ~ N(μ, Ψ).

| paper | here |
| --- | --- |
| W (D×H) | `components` (H, D) |
| π | `activation_probs` (H,) |
| σ² | `noise_variance` |
| μ | `slab_means` (H,) |
| Ψ | `slab_covariance` (H, H) if full, else its diagonal (H,) |

`state_posterior` integrates out the slab of a state; `update` and `full_slab` learn μ and Ψ.
"""

from collections.abc import Generator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import linalg

from evoem import validation
from evoem.models import linear
from evoem.models.all_rows import AllRows
from evoem.models.base import Posterior, Prior
from evoem.models.linear import LinearModel, Rows
from evoem.models.linear_moments import (
    LinearStats,
    Moments,
    count,
    empty_stats,
    negligible_weight,
)
from evoem.models.observed_gram import empty_gram
from evoem.models.residual_ranking import Guide
from evoem.models.scratch import with_scratch
from evoem.models.spike_slab import kernels
from evoem.models.spike_slab.full_slab import update_full_slab
from evoem.models.spike_slab.state_posterior import empty_system
from evoem.models.spike_slab.update import (
    SpikeSlabParams,
    SpikeSlabStats,
    authors_residual,
    printed_residual,
    unit_second_moments,
    update_slab,
)
from evoem.models.triangles import n_pairs, pack, unpack
from evoem.ranking import empty_ranks
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.linalg import square
from evoem.runtime.threads import both
from evoem.states import Genomes, Population
from evoem.validation import Mask

# Slab variance with which learning starts for latents that look like data points, their means
# being one; it is one for others.
EXAMPLE_SPREAD = 0.02


class Derived(NamedTuple):
    """The scaled dictionary V, its Gram matrix, and what each active latent adds."""

    scaled: NDArray[np.floating]  # W √ψ / σ
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]  # V Vᵀ
    logits: NDArray[np.float64]  # log-odds
    bias: NDArray[np.float64]  # these, less t²/2 with a diagonal Ψ
    shift: NDArray[np.float64]  # μ/√ψ
    spread: NDArray[np.float64]  # √ψ (H,), of the diagonal of a full Ψ
    products: NDArray[np.floating]  # V Vᵀ once more, see `triangles`
    # (pairs, 2): with a full Ψ, V Vᵀ and the slab's correlations side by side
    tables: NDArray[np.floating] | None
    noise_variance: float
    log_prior: float
    n_latents: int
    expected_active: float


class SpikeSlabModel(LinearModel):
    """Spike-and-slab sparse coding behind the model contract.

    Parameters
    ----------
    slab : {"diagonal", "full", "fixed"}
        Whether Ψ is learnt, as a diagonal or a full matrix, or does not change.
    learn_slab_means : bool
        Whether μ is learnt.
    init : {"mean", "data", "authors"}
        Initial dictionary, see `LinearModel`. "authors" is as "mean", but with a standard normal μ,
        as in the programs of the paper's authors, instead of one uniform on [1, 5].
    updates : {"monotone", "printed", "authors"}
        M-steps that never lower the bound, or those of eq:sssc_mstep: σ² from squared means
        instead of second moments, and a full Ψ as an element-wise ratio, made positive definite.
        Those of the authors' programs also use squared means, and another full Ψ, see
        `update.authors_covariance`.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import SpikeSlabModel
    >>> from evoem.models.spike_slab.model import SpikeSlabParams
    >>> W, one = np.array([[1.0, 0, 0], [0, 1, 1]]), np.ones(2)
    >>> params = SpikeSlabParams(W, one / 2, np.array(0.1), one, one)
    >>> X, states = SpikeSlabModel().sample(params, 5, np.random.default_rng(0))
    >>> X.shape, states.shape
    ((5, 3), (5, 2))
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **LinearModel.choices,
        "init": (*LinearModel.choices["init"], "authors"),
        "slab": ("diagonal", "full", "fixed"),
    }

    def __init__(
        self,
        slab: str = "diagonal",
        learn_slab_means: bool = True,
        init: str = "mean",
        updates: str = "monotone",
        least_noise_variance: float = 0.0,
        by_feature: bool = False,
    ) -> None:
        super().__init__(init, updates, least_noise_variance, by_feature)
        self.slab = validation.choice("slab", slab, self.choices["slab"])
        self.learn_slab_means = validation.boolean("learn_slab_means", learn_slab_means)

    def prepare(self, params: SpikeSlabParams, dtype: DTypeLike) -> Derived:
        pi, psi = params.activation_probs, params.slab_covariance
        sigma = np.sqrt(params.noise_variance)
        scaled = params.components / sigma
        logits = np.log(pi / (1 - pi))
        full = psi.ndim == 2
        spread = np.sqrt(np.diag(psi) if full else psi)
        shift = params.slab_means / spread
        scaled *= spread[:, None]
        gram = square(scaled).astype(dtype)
        products = pack(gram)
        correlations = pack((psi / np.outer(spread, spread)).astype(dtype)) if full else None
        return Derived(
            scaled.astype(dtype),
            (scaled / sigma).astype(dtype),
            gram,
            logits,
            logits if full else logits - 0.5 * shift**2,
            shift,
            spread,
            products,
            None if correlations is None else np.stack([products, correlations], axis=-1),
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            len(pi),
            float(pi.sum()),
        )

    def constant_variance(self, derived: Derived) -> float:
        return 1.0  # app:lpj counts log σ² to log|C_s|, not to C(Θ)

    def log_joints(self, derived: Derived, rows: Rows, population: Population) -> None:
        known = empty_gram(derived.scaled, rows.observed)
        with_scratch(
            lambda row, room: kernels.log_joints(
                row, derived, rows, known, population, empty_system(room)
            ),
            len(rows.X),
            len(derived.scaled),
        )

    def fill_moments(
        self,
        derived: Derived,
        rows: Rows,
        posterior: Posterior,
        moments: Moments,
        stats: SpikeSlabStats | None,
    ) -> None:
        known = empty_gram(derived.scaled, rows.observed)
        negligible = negligible_weight(derived.scaled.dtype)
        sums = (np.empty((0, 3)), np.empty(0)) if stats is None else stats[1:]
        system = empty_system(int(np.diff(moments.offsets).max(initial=0)))
        kernels.fill_moments(
            derived, rows, known, posterior, negligible, self.printed, moments, *sums, system
        )

    def add_complete_rows(
        self, stats: SpikeSlabStats, derived: Derived, rows: Rows, posterior: Posterior
    ) -> None:
        negligible = negligible_weight(derived.scaled.dtype)
        system = empty_system(int(kernels.most_active(posterior, negligible)))
        square = kernels.add_complete_rows(
            derived, rows, posterior, negligible, self.printed, stats, system
        )
        n_rows = int(rows.complete.sum())
        count(stats.linear, rows.X.dtype, n_rows, n_rows * rows.X.shape[1], square)

    def best_additions(
        self, derived: Derived, rows: Rows, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Latents ranked by their gain, as if V were orthogonal, without the prior's log-odds."""
        squares = self.observed_squares(derived, rows)
        dtype = squares.dtype.type
        means, pivots = derived.shift, 1 + squares
        constants = 0.5 * (np.log(pivots) + means**2)
        guide = Guide(
            means.astype(dtype),
            squares / (np.diag(derived.gram) + np.finfo(dtype).tiny),
            (0.5 / pivots).astype(dtype),
            constants.astype(dtype),
            dtype(0),
        )
        out = empty_ranks(genomes, n_best)
        known = empty_gram(derived.scaled, rows.observed)
        with_scratch(
            lambda row, room: kernels.best_additions(
                row, guide, derived, rows, known, genomes, out, empty_system(room)
            ),
            len(rows.X),
            len(derived.scaled),
        )
        return out

    def empty_statistics(self, params: SpikeSlabParams) -> SpikeSlabStats:
        sums = empty_stats(params.components, self.printed, self.by_feature)
        size = len(params.components) if params.slab_covariance.ndim == 2 else 0
        if size:
            sums = sums._replace(second=np.zeros(0))
        if size and self.as_authors and self.slab == "full":
            sums = sums._replace(joint=np.zeros((size, size)))
        return SpikeSlabStats(sums, np.zeros((n_pairs(size), 3)), np.zeros(size))

    def linear_part(self, stats: SpikeSlabStats) -> LinearStats:
        return stats.all_linear

    def finish_statistics(
        self, derived: Derived, stats: SpikeSlabStats
    ) -> tuple[SpikeSlabStats, SpikeSlabStats]:
        """For later M-steps without gradients of a full slab, which hold for these parameters."""
        later = stats._replace(pairs=stats.pairs * (1.0, 0.0, 1.0), pull=np.zeros_like(stats.pull))
        return stats, later

    def update(self, params: SpikeSlabParams, stats: SpikeSlabStats) -> Any:
        if self.slab == "full" and not self.printed:
            return self._full_slab_candidates(params, stats)
        return self._update(params, stats, cautious=False)

    def _full_slab_candidates(
        self, params: SpikeSlabParams, stats: SpikeSlabStats
    ) -> Generator[SpikeSlabParams, None, SpikeSlabParams]:
        """A long step, which may lower the bound, and one that is certain not to."""
        yield self._update(params, stats, cautious=False)
        return self._update(params, stats, cautious=True)

    def _update(
        self, params: SpikeSlabParams, stats: SpikeSlabStats, cautious: bool
    ) -> SpikeSlabParams:
        sums = stats.all_linear
        old = float(params.noise_variance)
        learnt = {"learn_means": self.learn_slab_means, "learn_covariance": self.slab != "fixed"}

        def dictionary() -> tuple[NDArray[np.float64], float]:
            second, least = unpack(sums.second), self.least_noise_variance
            return linear.update_dictionary(sums, second, params.components, old, least)

        if params.slab_covariance.ndim == 2 and not self.printed:
            means, find = update_full_slab(params, stats, cautious=cautious, **learnt)
            (components, noise), covariance = both(dictionary, find)
        else:
            components, noise = dictionary()
            means, covariance = update_slab(params, stats, as_authors=self.as_authors, **learnt)
        if self.printed:
            noise = self._printed_noise_variance(sums, params.components, components, old)
        pi = linear.clip_probabilities(  # app:mstep_equations: π
            sums.activation / sums.n_rows, self.least_probability
        )
        return SpikeSlabParams(components, pi, np.array(noise), means, covariance)

    def _printed_noise_variance(
        self,
        sums: LinearStats,
        W: NDArray[np.float64],
        new: NDArray[np.float64],
        old: float,
    ) -> float:
        """σ² from squared means; the authors' programs take the old W where values are missing."""
        if self.as_authors and sums.n_observed < sums.n_rows * W.shape[1]:
            left = authors_residual(sums, W)
            return linear.authors_noise_variance(sums, left, old, self.least_noise_variance)
        left = printed_residual(sums, W, new)
        return linear.noise_variance(sums, left, old, self.least_noise_variance)

    def canonical(self, params: SpikeSlabParams) -> SpikeSlabParams:
        if self.slab != "fixed" and self.learn_slab_means:
            return unit_second_moments(params)
        return params

    def prior(self, params: SpikeSlabParams) -> Prior:
        pi, mu, psi, W = (params.activation_probs, params.slab_means, params.slab_covariance,
                          params.components)  # fmt: skip
        means = pi * mu
        full = psi if psi.ndim == 2 else np.diag(psi)
        covariance = np.outer(pi, pi) * full
        np.fill_diagonal(covariance, pi * (np.diag(full) + mu**2) - means**2)
        return Prior(means, means @ W, np.einsum("gd,gh,hd->d", W, covariance, W, optimize=True))

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> SpikeSlabParams:
        rows = AllRows(X, observed, comm)
        components, variance = self.initial_dictionary(rows, n_latents, rng)
        pi = rng.uniform(0.1, 0.5, n_latents)
        means = rng.uniform(1.0, 5.0, n_latents)
        if self.init == "authors":
            means = rng.standard_normal(n_latents)
        if not self.learn_slab_means:
            means = np.ones(n_latents)  # subsec:inpainting
        covariance = np.eye(n_latents) if self.slab == "full" else np.ones(n_latents)
        return SpikeSlabParams(components, pi, np.array(variance), means, covariance)

    def with_dictionary(
        self,
        examples: NDArray[np.float64],
        details: NDArray[np.float64],
        noise_variance: float,
    ) -> SpikeSlabParams:
        components = np.concatenate([examples, details])
        spread = np.ones(len(components))
        if self.slab != "fixed":
            spread[: len(examples)] = EXAMPLE_SPREAD
        return SpikeSlabParams(
            components,
            linear.few_active(len(examples), len(details)),
            np.array(noise_variance),
            np.ones(len(components)),
            np.diag(spread) if self.slab == "full" else spread,
        )

    def sample(
        self, params: SpikeSlabParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        H = len(params.components)
        states = rng.random((n, H)) < params.activation_probs
        normal = rng.standard_normal((n, H))
        if params.slab_covariance.ndim == 2:
            slab = normal @ linalg.cholesky(params.slab_covariance, lower=True).T
        else:
            slab = normal * np.sqrt(params.slab_covariance)
        return linear.observe(states * (params.slab_means + slab), params, rng), states
