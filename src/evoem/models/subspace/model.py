"""Spike-and-slab coding whose binary latents switch whole subspaces on and off.

A latent of spike-and-slab coding adds one pattern in a random amount. Here it adds several,

    y ~ N(Σ_g s_g W_gᵀ z_g, σ² 1),    z_g ~ N(μ_g, diag ψ_g),

of which one may be a mean (μ = 1, ψ small) and the others the directions in which data differ from
it (μ = 0). Directions that vary together then cost one active latent in the prior, not several.
With one pattern per latent this is spike-and-slab coding; with exactly one active latent, a mixture
of Gaussians of low rank.

`components` (C, D), `slab_means` and `slab_covariance` (C,) have the patterns of all latents one
after the other; those of latent g are `groups[g]:groups[g + 1]`.

The patterns of a latent can be rotated freely: z has unit covariance once √ψ is in the dictionary.
They are rotated to be orthogonal, V_g V_gᵀ = diag λ_g, so that the system of `state_posterior` is
diagonal for a state of one latent, and nearly so for others.

If rows have positions in a plane, activation probabilities may vary over it: see
`evoem.models.subspace.spatial_prior`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem import validation
from evoem.models import linear
from evoem.models.all_rows import AllRows, median_of_counts
from evoem.models.base import Model, Posterior, Prior
from evoem.models.linear import LinearModel, Rows, slice_rows
from evoem.models.linear_moments import (
    NOISE_FLOORS,
    LinearStats,
    Moments,
    empty_stats,
    negligible_weight,
)
from evoem.models.scratch import with_scratch
from evoem.models.spike_slab.model import EXAMPLE_SPREAD
from evoem.models.spike_slab.state_posterior import SLAB_FLOOR
from evoem.models.spike_slab.update import slab_means, slab_variances
from evoem.models.subspace import kernels, spatial_prior
from evoem.models.subspace.kernels import Tiers, block_offsets, tiers_of
from evoem.models.subspace.rotation import rotate
from evoem.models.subspace.shrinkage_prior import within_latents
from evoem.models.subspace.small_systems import (
    Pairs,
    empty_gram,
    solve_pairs,
)
from evoem.models.subspace.spatial_prior import FieldStats
from evoem.models.subspace.start import (
    Clusters,
    cluster,
    farthest,
    nearest,
    principal_directions,
)
from evoem.ranking import empty_ranks, highest
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.linalg import square
from evoem.states import Genomes, Population, States, pack, whole_population
from evoem.validation import Mask, Positions

# A pattern has as many parameters as data have features. It is worth having where the likelihood
# gains so many nats by each.
WORTH = 2.0
# Of the farthest row's squared distance, what σ² starts at, at least. If it starts far below, an
# outlier is explained at once by patterns that point there just a little, in huge amounts that
# cancel each other, and sums lose their digits.
FARTHEST_SHARE = 1e-8
# Latents that are active in a row, to begin with.
ACTIVE_AT_FIRST = 1.2
# Rows that clusters are found among.
EXAMPLES = 20_000
# Correlations of patterns with what states leave that are held at once: they stay in the cache.
CORRELATIONS_AT_ONCE = 1 << 19
# Latents that the best ones of an incomplete row are chosen among, for each.
CANDIDATES = 4
# Rows of which less than this share of the usual number of values was observed, such as patches
# that reach beyond an image, say more about what they were filled with.
USUAL = 0.75


class SubspaceParams(NamedTuple):
    """Θ = (π, σ, W, μ, ψ) and where the patterns of each latent start."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    slab_means: NDArray[np.float64]
    slab_covariance: NDArray[np.float64]
    groups: NDArray[np.int64]
    # (rows, columns, G) if π depends on where a row lies, see `evoem.models.subspace.spatial_prior`
    field: NDArray[np.float64] | None = None


class SubspaceStats(NamedTuple):
    """The statistics of every linear model, for patterns, but with second moments by pairs of
    latents; and counts of states whose covariance is the same for all rows."""

    linear: LinearStats
    second: NDArray[np.float64]  # Σ⟨c cᵀ⟩ by pairs of latents, see `block_offsets`
    together: NDArray[np.float64]  # (G, G): weight of states of latents g < h alone, or of g alone
    field: FieldStats  # empty if there is none


class Derived(NamedTuple):
    """The scaled dictionary V, rotated within each latent, and what follows from it."""

    groups: NDArray[np.int64]
    scaled: NDArray[np.floating]  # (C, D)  V
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]  # V Vᵀ: diagonal within a latent
    logits: NDArray[np.float64]  # (1, G)  log-odds of the latents
    bias: NDArray[np.float64]  # (1, G)  log-odds - t²/2
    field: NDArray[np.float64] | None
    shift: NDArray[np.floating]  # (C,)  t
    pivots: NDArray[np.floating]  # (C,)  1 / (1 + λ)
    constants: NDArray[np.float64]  # (G,)  -½ Σ log(1 + λ)
    pairs: Pairs
    tiers: Tiers
    blocks: NDArray[np.int64]  # (G, G): where second moments of pairs of latents stand
    back: NDArray[np.float64]  # (C, largest rank): row i has √ψ times the rotation of pattern i
    noise_variance: float
    log_prior: float
    n_latents: int
    expected_active: float


def least_slab_share(sums: LinearStats) -> float:
    """The smallest share of ψ in the second moment of a slab.

    Solved systems are stored in the precision of the data, and μ²/ψ nats are summed with them. So
    it is the relative precision of squares of the data.
    """
    square = max(float(sums.data_square), np.finfo(float).tiny)
    known_to = min(float(sums.floor) / square, max(NOISE_FLOORS.values()))
    return max(known_to, SLAB_FLOOR)


class SubspaceModel(LinearModel):
    """Spike-and-slab coding with several patterns a latent, behind the model contract.

    Parameters
    ----------
    rank : int
        Largest number of patterns of a latent, besides its mean.
    least_noise_variance : float
        See `LinearModel`.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.models import SubspaceModel
    >>> rng = np.random.default_rng(0)
    >>> X = 9 * np.eye(3)[rng.integers(3, size=60)] + rng.normal(size=(60, 3))
    >>> params = SubspaceModel(rank=1).initialize(X, None, 3, rng)
    >>> len(params.activation_probs), len(params.groups)
    (3, 4)
    """

    def __init__(self, rank: int = 2, least_noise_variance: float = 0.0) -> None:
        super().__init__(least_noise_variance=least_noise_variance)
        self.rank = validation.integer("rank", rank, 0)

    def from_clusters(
        self,
        rows: NDArray[np.floating],
        clusters: Clusters,
        noise_variance: float | None = None,
        comm: Communicator = ALONE,
    ) -> SubspaceParams:
        """A latent for each cluster: its mean, and the directions in which its rows differ.

        A direction is kept if it is worth its parameters: rows whose variance along it is ρ times
        that of the noise gain (ρ - 1 - log ρ) / 2 nats each. `rows` must be all rows: in a small
        sample variances differ by chance, which would be weighed against the gain of all rows. With
        several processes each has some, in whole blocks of `AllRows`.
        """
        everywhere = AllRows(rows, None, comm)
        counts, means, variances, vectors = principal_directions(everywhere, clusters)
        n_features = rows.shape[1]
        shares = counts / counts.sum()
        if noise_variance is None:  # what is smallest is noise
            noise_variance = float(shares @ variances[:, n_features // 2 :].mean(1))
            noise_variance = max(
                noise_variance, FARTHEST_SHARE * farthest(everywhere, means, clusters.labels)
            )
        noise_variance = max(noise_variance, linear.least_noise(everywhere), np.finfo(float).tiny)
        ratios = np.maximum(variances / noise_variance, 1.0)
        gains = 0.5 * counts[:, None] * (ratios - 1 - np.log(ratios))
        ranks = np.minimum((gains > WORTH * n_features).sum(1), self.rank)
        scales = np.sqrt(np.maximum(variances - noise_variance, 0.0))
        components, slab_means = [], []
        for g, rank in enumerate(ranks):
            components += [means[g : g + 1], vectors[g, :rank] * scales[g, :rank, None]]
            slab_means += [1.0] + [0.0] * int(rank)
        slab_means_array = np.array(slab_means)
        return SubspaceParams(
            np.concatenate(components),
            np.clip(ACTIVE_AT_FIRST * shares, 0.1 / len(shares), 0.5),
            np.array(noise_variance),
            slab_means_array,
            np.where(slab_means_array > 0, EXAMPLE_SPREAD, 1.0),
            np.concatenate([[0], np.cumsum(1 + ranks)]).astype(np.int64),
        )

    def initialize(
        self,
        X: NDArray[np.floating],
        observed: Mask | None,
        n_latents: int,
        rng: np.random.Generator,
        comm: Communicator = ALONE,
    ) -> SubspaceParams:
        if observed is not None:
            mean, _ = linear.observed_moments(AllRows(X, observed, comm))
            counts = observed.sum(1)
            X = np.where(observed, X, mean).astype(X.dtype)
            X = X[counts >= USUAL * median_of_counts(counts, X.shape[1], comm)]
        rows = AllRows(X, None, comm).in_whole_blocks()
        chosen, _ = rows.take(rng.permutation(rows.n_rows)[:EXAMPLES])
        found = cluster(chosen.astype(X.dtype), n_latents, int(rng.integers(2**31)))
        return self.from_clusters(rows.X, nearest(rows, found.centres), comm=comm)

    def prepare(self, params: SubspaceParams, dtype: DTypeLike) -> Derived:
        pi, groups = params.activation_probs, params.groups
        sigma = np.sqrt(params.noise_variance)
        spread = np.sqrt(params.slab_covariance)
        V = params.components * (spread / sigma)[:, None]
        shift = params.slab_means / spread
        back = rotate(groups, V, shift, spread)
        gram = square(V).astype(dtype)
        pivots = 1 + np.square(V).sum(1)
        logits = np.log(pi / (1 - pi))
        return Derived(
            groups,
            V.astype(dtype),
            (V / sigma).astype(dtype),
            gram,
            logits[None],
            (logits - 0.5 * np.add.reduceat(shift**2, groups[:-1]))[None],
            params.field,
            shift.astype(dtype),
            (1 / pivots).astype(dtype),
            -0.5 * np.add.reduceat(np.log(pivots), groups[:-1]),
            solve_pairs(groups, gram),
            tiers_of(groups),
            block_offsets(groups),
            back,
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            len(pi),
            float(pi.sum()),
        )

    def groups(self, derived: Any) -> NDArray[np.int64] | None:
        own: NDArray[np.int64] = derived.groups
        return own

    def prepare_rows(
        self,
        derived: Any,
        X: NDArray[np.floating],
        observed: Mask | None,
        positions: Positions = None,
    ) -> Rows:
        """Rows with activation probabilities at their positions, if there is a spatial prior."""
        rows = super().prepare_rows(derived, X, observed)
        if derived.field is None or positions is None:
            return rows
        sites = spatial_prior.locate(derived.field, positions)
        odds = (sites.probs / (1 - sites.probs)).astype(rows.X.dtype)
        log_prior = sites.log_inactive - derived.log_prior
        logits = np.log(odds)
        return rows._replace(
            base=rows.base + log_prior,
            ceiling=rows.ceiling + log_prior,
            constants=rows.constants + log_prior,
            sites=sites,
            bias=derived.bias - derived.logits + logits,
            logits=logits,
        )

    def _records(self, derived: Any, rows: Rows) -> tuple[Any, Rows, Any]:
        """Records for kernels: Derived and Rows, of the same types with and without a field, and
        room for inner products over observed values, if any are missing."""
        if rows.bias is None:
            rows = rows._replace(bias=derived.bias, logits=derived.logits)
        known = empty_gram(derived.scaled, derived.groups, rows.observed)
        return derived._replace(field=None), rows._replace(sites=None), known

    def log_joints(self, derived: Any, rows: Rows, population: Population) -> None:
        records, size = self._records(derived, rows), len(derived.scaled)
        with_scratch(
            lambda row, room: kernels.log_joints(row, *records, population, room),
            len(rows.X),
            size,
        )

    def first_states(self, derived: Any, rows: Rows, n_states: int) -> States:
        """The best states with one active latent.

        For incomplete rows they are chosen from those that would be best if V were orthogonal over
        observed values.
        """
        scores = self.single_scores(derived, rows)
        best = highest(scores, n_states)
        single = pack(np.eye(derived.n_latents, dtype=np.bool_))
        incomplete = np.flatnonzero(~rows.complete)
        if len(incomplete):
            best[incomplete] = self._best_of_incomplete(
                derived, slice_rows(rows, incomplete), scores[incomplete], n_states, single
            )
        first: States = single[np.sort(best, axis=1)]
        return first

    def _best_of_incomplete(
        self,
        derived: Any,
        rows: Rows,
        scores: NDArray[np.float64],
        n_states: int,
        single: States,
    ) -> NDArray[np.int64]:
        candidates = highest(scores, min(CANDIDATES * n_states, derived.n_latents))
        values = np.empty(candidates.shape)
        self.log_joints(derived, rows, whole_population(single[candidates], values))
        return np.take_along_axis(candidates, highest(values, n_states), axis=1)

    def single_scores(self, derived: Any, rows: Rows) -> NDArray[np.float64]:
        """Log-joints of states of one latent; for incomplete rows as if V were orthogonal."""
        squares = np.empty((0, len(derived.scaled)), derived.scaled.dtype)
        if rows.observed is not None:
            seen = rows.observed[~rows.complete].astype(derived.scaled.dtype)
            squares = linear.row_products(seen, derived.scaled**2)
        out = np.empty((len(rows.X), derived.n_latents))
        derived, rows, _ = self._records(derived, rows)
        kernels.single_scores(derived, rows, squares, out)
        return out

    def fill_moments(
        self, derived: Any, rows: Rows, posterior: Posterior, moments: Moments,
        stats: Any | None,
    ) -> None:  # fmt: skip
        sums: Any = (np.empty(0), np.empty((0, 0)))
        if stats is not None:
            sums = stats.second, stats.together
        negligible = negligible_weight(derived.scaled.dtype)
        room = int(kernels.most_patterns(derived.groups, posterior, negligible))
        kernels.fill_moments(
            *self._records(derived, rows), posterior, negligible, moments, *sums, room
        )

    def empty_statistics(self, params: SubspaceParams) -> SubspaceStats:
        G, sizes = len(params.activation_probs), np.diff(params.groups)
        return SubspaceStats(
            empty_stats(params.components)._replace(second=np.zeros(0)),
            np.zeros((sizes.sum() ** 2 + sizes @ sizes) // 2),
            np.zeros((G, G)),
            spatial_prior.empty_statistics(params.field, G),
        )

    def linear_part(self, stats: SubspaceStats) -> LinearStats:
        return stats.linear

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> None:
        self.add_rows(stats, self.rotated(params, derived), derived, rows, posterior)
        negligible = negligible_weight(derived.scaled.dtype)
        spatial_prior.add(stats.field, rows.sites, *posterior, negligible)

    def finish_statistics(self, derived: Any, stats: Any) -> tuple[Any, Any]:
        plain = derived._replace(field=None)
        kernels.add_covariances(plain, stats.together, stats.second)
        stats.together[:] = 0.0
        kernels.rotate_moments(plain, stats.second)
        self.rotate_sums(derived, stats)
        return stats, stats

    def rotate_sums(self, derived: Any, stats: Any) -> None:
        """Turn sums of rotated patterns into those of the patterns of the parameters, in place."""
        sums = stats.linear
        for values in (sums.first[:, None], sums.cross):
            values[:] = within_latents(derived.groups, derived.back, values)
        if derived.field is not None:
            spatial_prior.settle(stats.field, derived.field)

    def rotated(self, params: SubspaceParams, derived: Any) -> SubspaceParams:
        """An equivalent model with the rotated patterns, whose slabs have unit variances."""
        return params._replace(
            components=derived.scaled.astype(np.float64) * np.sqrt(derived.noise_variance),
            slab_means=derived.shift.astype(np.float64),
            slab_covariance=np.ones(len(derived.shift)),
        )

    def reconstruct(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        mean, variance = super().reconstruct(
            self.rotated(params, derived), derived, rows, posterior
        )
        if rows.sites is not None:
            unseen = linear.nothing_observed(rows.observed)
            mean[unseen], variance[unseen] = self._expected(params, rows.sites.probs[unseen])
        return mean, variance

    def best_additions(
        self, derived: Any, rows: Rows, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Latents ranked by their gain, as if V were orthogonal, without the prior's log-odds."""
        owns, squares = self._squares_seen(derived, rows)
        V, (n_rows, n_parents, _) = derived.scaled, genomes.states.shape
        out = empty_ranks(genomes, n_best)
        left = np.zeros((n_rows, n_parents, V.shape[1]), V.dtype)
        plain, some_rows, known = self._records(derived, rows)
        sigma = V.dtype.type(np.sqrt(derived.noise_variance))
        with_scratch(
            lambda row, room: kernels.residuals(
                row, plain, sigma, some_rows, known, genomes, left, room
            ),
            n_rows,
            len(V),
        )
        in_tiers, shift = V[derived.tiers.patterns], derived.shift[derived.tiers.patterns]
        step = max(CORRELATIONS_AT_ONCE // (n_parents * len(V)), 1)
        for start in range(0, n_rows, step):
            part = slice(start, start + step)
            some = linear.row_products(left[part].reshape(-1, V.shape[1]), in_tiers)
            kernels.rank_additions(
                derived.tiers, shift, squares, owns[part], some.reshape(-1, n_parents, len(V)),
                slice_rows(genomes, part), out[part],
            )  # fmt: skip
        return out

    def _squares_seen(
        self, derived: Any, rows: Rows
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """Σ_d V² over observed values, in tiers, and which of these belong to each row: often the
        first."""
        own, V = np.zeros(len(rows.X), np.int64), derived.scaled[derived.tiers.patterns]
        squares = np.diag(derived.gram)[None, derived.tiers.patterns]
        if rows.observed is None:
            return own, squares
        incomplete = np.flatnonzero(~rows.complete)
        own[incomplete] = np.arange(1, len(incomplete) + 1)
        some = linear.row_products(rows.observed[incomplete].astype(V.dtype), V**2)
        return own, np.concatenate([squares, some])

    def update(self, params: SubspaceParams, stats: SubspaceStats) -> SubspaceParams:
        sums = stats.linear
        components, noise = self.new_dictionary(params, stats)
        pi = linear.clip_probabilities(sums.activation[params.groups[:-1]] / sums.n_rows)
        means = slab_means(params.slab_means, sums)
        squares = self.sums_of_squares(params, stats)
        least = least_slab_share(sums)
        variances = slab_variances(params.slab_covariance, means, sums, squares, least)
        local = (
            None if params.field is None else spatial_prior.update(params.field, stats.field, pi)
        )
        return SubspaceParams(
            components, pi, np.array(noise), means, variances, params.groups, local
        )

    def new_dictionary(
        self, params: SubspaceParams, stats: Any
    ) -> tuple[NDArray[np.float64], float]:
        """W and σ² that raise the bound."""
        second = kernels.spread(params.groups, stats.second)
        return linear.update_dictionary(
            stats.linear,
            second,
            params.components,
            float(params.noise_variance),
            self.least_noise_variance,
        )

    def sums_of_squares(self, params: SubspaceParams, stats: Any) -> NDArray[np.float64]:
        """(C,)  Σ⟨c²⟩ of each pattern."""
        blocks = np.diag(block_offsets(params.groups))
        diagonals = [
            start + np.arange(size) * (size + 1)
            for start, size in zip(blocks, np.diff(params.groups), strict=True)
        ]
        squares: NDArray[np.float64] = stats.second[np.concatenate(diagonals)]
        return squares

    def codes(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior probability that a latent is active: its patterns share no amplitude."""
        out = Model.codes(self, params, derived, rows, posterior)
        unseen = linear.nothing_observed(rows.observed)
        own = params.activation_probs if rows.sites is None else rows.sites.probs[unseen]
        out[unseen] = own
        return out

    def prior(self, params: SubspaceParams) -> Prior:
        return Prior(params.activation_probs, *self._expected(params, params.activation_probs))

    def _expected(
        self, params: SubspaceParams, pi: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of data under the prior, for one π or for each of several."""
        starts, W = params.groups[:-1], params.components
        means = np.add.reduceat(params.slab_means[:, None] * W, starts)
        variances = np.add.reduceat(params.slab_covariance[:, None] * W**2, starts)
        # Latents are independent: Var of s_g m_g, with m_g what the means of their patterns add.
        return pi @ means, pi @ variances + (pi * (1 - pi)) @ means**2

    def sample(
        self, params: SubspaceParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        states = rng.random((n, len(params.activation_probs))) < params.activation_probs
        active = np.repeat(states, np.diff(params.groups), axis=1)
        slab = rng.standard_normal(active.shape) * np.sqrt(params.slab_covariance)
        return linear.observe(active * (params.slab_means + slab), params, rng), states
