"""Spike-and-slab coding whose binary latents switch whole subspaces on and off.

A latent of spike-and-slab coding adds one pattern in a random amount. Here it adds several,

    y ~ N(Σ_g s_g W_gᵀ z_g, σ² 1),    z_g ~ N(μ_g, diag ψ_g),

of which one may be a mean (μ = 1, ψ small) and the others the directions in which data differ from
it (μ = 0). What varies together then costs one switch in the prior, not one each. With one pattern
a latent this is spike-and-slab coding; with exactly one active latent, a mixture of Gaussians of low
rank.

`components` (C, D), `slab_means` and `slab_covariance` (C,) have the patterns of all latents one
after the other; those of latent g are `groups[g]:groups[g + 1]`.

Within a latent patterns can be rotated as one likes: z has unit covariance once √ψ is in the
dictionary. They are rotated to be orthogonal, V_g V_gᵀ = diag λ_g, so that the system of
`slab_posterior` is diagonal for a state of one latent, and nearly so for others.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evoem.compile import inlined, inlined_in_order, kernel
from evoem.models import linear
from evoem.models.base import Mask, Model, Posterior, Prior
from evoem.models.clusters import Clusters, cluster, principal_directions
from evoem.models.linear import LinearStats, Moments, Rows
from evoem.models.spike_slab import EXAMPLE_SPREAD, SpikeSlabModel
from evoem.ranking import GROUPS, best_scores, empty_ranks
from evoem.states import Genomes, Population, active_latents

# The product of pivots is turned into a logarithm before it can overflow.
LARGE = 1e200
# A pattern has as many parameters as data have features. It is worth having where the likelihood
# gains so many nats by each.
WORTH = 2.0
# Latents that are active in a row, to begin with.
ACTIVE_AT_FIRST = 1.2
# Rows that clusters are found among.
EXAMPLES = 20_000


class SubspaceParams(NamedTuple):
    """Θ = (π, σ, W, μ, ψ) and where the patterns of each latent start."""

    components: NDArray[np.float64]
    activation_probs: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    slab_means: NDArray[np.float64]
    slab_covariance: NDArray[np.float64]
    groups: NDArray[np.int64]


class SubspaceStats(NamedTuple):
    """Those of every linear model, of patterns; and how often states were met whose covariance is
    the same for all rows."""

    linear: LinearStats
    together: NDArray[np.float64]  # (G, G): weight of states of latents g < h alone, or of g alone

    @property
    def all_linear(self) -> LinearStats:
        """As with spike-and-slab coding."""
        return self.linear


class Pairs(NamedTuple):
    """States of two latents a < b of rows with nothing missing: their systems, solved once for all.

    With η the correlations of both, M⁻¹ = diag(d_a⁻¹, 0) + Aᵀ A, so that

        ηᵀ M⁻¹ η = Σ η_a² / d_a + |A η|².
    """

    places: NDArray[np.int64]  # (G, G): where A starts in `maps`
    maps: NDArray[np.floating]  # A, each (q_b, q_a + q_b)
    constants: NDArray[np.float64]  # (G, G)  -½ log|M|


class Derived(NamedTuple):
    """The scaled dictionary V, rotated within each latent, and what follows from it."""

    groups: NDArray[np.int64]
    scaled: NDArray[np.floating]  # (C, D)  V
    projector: NDArray[np.floating]  # V / σ
    gram: NDArray[np.floating]  # V Vᵀ: diagonal within a latent
    bias: NDArray[np.float64]  # (G,)  log-odds - t²/2
    shift: NDArray[np.floating]  # (C,)  t
    pivots: NDArray[np.floating]  # (C,)  1 / (1 + λ)
    constants: NDArray[np.float64]  # (G,)  -½ Σ log(1 + λ)
    pairs: Pairs
    back: NDArray[np.float64]  # (C, largest rank): row i has √ψ times the rotation of pattern i
    noise_variance: float
    log_prior: float
    expected_active: float


@inlined
def gather(gram, active, n, local):
    """The lower triangle of the Gram matrix of the active patterns."""
    for i in range(n):
        h = active[i]
        for j in range(i + 1):
            local[i * n + j] = gram[h, active[j]]


@inlined_in_order
def factorise(local, eta, n, diagonal, column, inverse):
    """½ ηᵀ M⁻¹ η - ½ log|M| of M = 1 + `local`, whose first `diagonal` rows are diagonal.

    Leaves L of M = L d Lᵀ below the diagonal of `local`, 1/d in `inverse`, L⁻¹ η in `eta`.
    """
    value = 0.0
    determinant = 1.0
    for j in range(n):
        pivot = max(1.0 + local[j * n + j], 1.0)  # below one by rounding alone
        determinant *= pivot
        if determinant > LARGE:
            value -= 0.5 * np.log(determinant)
            determinant = 1.0
        inverse[j] = 1.0 / pivot
        z = eta[j]
        value += 0.5 * z * z * inverse[j]
        begin = max(j + 1, diagonal)
        for i in range(begin, n):
            column[i] = local[i * n + j]
        for i in range(begin, n):
            factor = column[i] * inverse[j]
            local[i * n + j] = factor
            eta[i] -= factor * z
            for p in range(begin, i + 1):
                local[i * n + p] -= factor * column[p]
    return value - 0.5 * np.log(determinant)


@inlined_in_order
def solve_back(local, eta, n, diagonal, inverse, u):
    """u = L⁻ᵀ d⁻¹ `eta`."""
    for i in range(n - 1, -1, -1):
        u[i] = eta[i] * inverse[i]
    for j in range(n - 1, diagonal - 1, -1):
        for i in range(j):
            u[i] -= local[j * n + i] * u[j]


@inlined_in_order
def invert(local, n, diagonal, inverse, N):
    """M⁻¹ over `local`, lower triangle, from what `factorise` left there."""
    for i in range(n):  # N = L⁻¹, row by row
        for j in range(i):
            N[i * n + j] = 0.0
        N[i * n + i] = 1.0
        if i >= diagonal:
            for p in range(i):
                factor = local[i * n + p]
                for j in range(p + 1):
                    N[i * n + j] -= factor * N[p * n + j]
    for i in range(n):
        for j in range(i + 1):
            local[i * n + j] = 0.0
    for p in range(n):  # Nᵀ d⁻¹ N
        for i in range(p + 1):
            factor = N[p * n + i] * inverse[p]
            if factor != 0.0:
                for j in range(i + 1):
                    local[i * n + j] += factor * N[p * n + j]


@inlined
def single_square(eta, pivots, begin, end):
    """ηᵀ M⁻¹ η of one latent."""
    total = 0.0
    for i in range(begin, end):
        total += eta[i] * eta[i] * pivots[i]
    return total


@inlined
def pair_map(eta, groups, maps, place, a, b, v):
    """v = A η of two latents."""
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    for i in range(n_second):
        total = maps.dtype.type(0)
        for j in range(n_first):
            total += maps[place + j] * eta[first + j]
        place += n_first
        for j in range(n_second):
            total += maps[place + j] * eta[second + j]
        place += n_second
        v[i] = total


@inlined
def pair_means(eta, groups, pivots, gram, maps, place, a, b, v, u):
    """u = M⁻¹ η of two latents: (A η)ᵀ A, and for the first as it is given the second."""
    first, second = groups[a], groups[b]
    n_first, n_second = groups[a + 1] - first, groups[b + 1] - second
    pair_map(eta, groups, maps, place, a, b, v)
    for j in range(n_second):
        u[n_first + j] = 0.0
    for i in range(n_second):
        row = place + i * (n_first + n_second) + n_first
        for j in range(n_second):
            u[n_first + j] += v[i] * maps[row + j]
    for i in range(n_first):
        total = eta[first + i]
        for j in range(n_second):
            total -= gram[first + i, second + j] * maps.dtype.type(u[n_first + j])
        u[i] = total * pivots[first + i]


@kernel
def _solve_pairs(groups, gram, places, maps, constants):
    G = len(groups) - 1
    room = 0
    for g in range(G):
        room = max(room, groups[g + 1] - groups[g])
    local, N = np.empty(4 * room * room), np.empty(4 * room * room)
    eta, column, inverse = np.zeros(2 * room), np.empty(2 * room), np.empty(2 * room)
    active = np.empty(2 * room + 2, np.int64)
    for b in range(G):
        for a in range(b):
            active[0], active[1] = a, b
            n = linear.expand(groups, active, 2)
            diagonal = groups[a + 1] - groups[a]
            gather(gram, active, n, local)
            constants[a, b] = factorise(local, eta, n, diagonal, column, inverse)
            # A = d^-1/2 times the rows of L⁻¹ that belong to b.
            place = places[a, b]
            for i in range(diagonal, n):
                for j in range(i):
                    N[i * n + j] = 0.0
                N[i * n + i] = 1.0
                for p in range(i):
                    factor = local[i * n + p]
                    if p < diagonal:
                        N[i * n + p] -= factor
                    else:
                        for j in range(p + 1):
                            N[i * n + j] -= factor * N[p * n + j]
                for j in range(n):
                    maps[place + j] = N[i * n + j] * np.sqrt(inverse[i]) if j <= i else 0.0
                place += n


def solve_pairs(groups: NDArray[np.int64], gram: NDArray[np.floating]) -> Pairs:
    """The systems of all pairs of latents."""
    sizes = np.diff(groups)
    entries = np.triu(sizes * (sizes[:, None] + sizes), 1)
    ends = np.cumsum(entries).reshape(entries.shape)
    maps = np.empty(int(ends[-1, -1]), gram.dtype)
    constants = np.zeros(entries.shape)
    places = ends - entries
    _solve_pairs(groups, gram, places, maps, constants)
    return Pairs(places, maps, constants)


@kernel
def _log_joints(
    groups, V, gram, bias, shift, pivots, constants, pairs, projections, base, complete, observed,
    states, out, starts, stops,
):  # fmt: skip
    places, maps, pair_constants = pairs
    C, D = V.shape
    active = np.empty(C + 1, np.int64)
    room = 32
    local = np.empty(room**2)
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, column, inverse = np.empty(C), np.empty(C), np.empty(C)
    if observed is not None:
        slots = np.full(C, -1)
        members = np.empty(C, np.int64)
        n_members = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_members = linear.reset_observed_gram(slots, members, n_members)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(starts[r], stops[r]):
            k = active_latents(states, r, m, active)
            value = base[r]
            for i in range(k):
                value += bias[active[i]]
            if complete_row and 0 < k < 3:
                a = active[0]
                value += 0.5 * single_square(row, pivots, groups[a], groups[a + 1])
                if k == 1:
                    out[r, m] = value + constants[a]
                    continue
                b = active[1]
                pair_map(row, groups, maps, places[a, b], a, b, v)
                total = 0.0
                for i in range(groups[b + 1] - groups[b]):
                    total += v[i] * v[i]
                out[r, m] = value + 0.5 * total + pair_constants[a, b]
                continue
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[active[0] + 1] - groups[active[0]]
            n = linear.expand(groups, active, k)
            if n > room:
                room = min(2 * n, C)
                local = np.empty(room**2)
            for i in range(n):
                eta[i] = row[active[i]]
            if complete_row:
                gather(gram, active, n, local)
            elif observed is not None:
                n_members = linear.fill_observed_gram(
                    V, seen, active, n, slots, members, n_members, known, local
                )
            out[r, m] = value + factorise(local, eta, n, diagonal, column, inverse)


@kernel
def _moments(
    groups, V, gram, shift, pivots, pairs, projections, complete, observed,
    offsets, squares, members, activation, first, second, states, weights, negligible,
    sum_second, together,
):  # fmt: skip
    pair_places, maps, _ = pairs
    C, D = V.shape
    active = np.empty(C + 1, np.int64)
    places = np.empty(C, np.int64)
    room = 32
    local, N = np.empty(room**2), np.empty(room**2)
    row, v = np.empty(C, V.dtype), np.empty(C, V.dtype)
    eta, u, column, inverse = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    if observed is not None:
        slots = np.full(C, -1)
        met = np.empty(C, np.int64)
        n_met = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        begin, matrix = offsets[r], squares[r]
        size = offsets[r + 1] - begin
        keep = squares[r + 1] > matrix
        for i in range(size):
            places[members[begin + i]] = i
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        complete_row = observed is None or complete[r]
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for m in range(states.shape[1]):
            weight = weights[r, m]
            if not weight > negligible:
                continue
            k = active_latents(states, r, m, active)
            known_system = complete_row and 0 < k < 3 and not keep
            if known_system:
                a, b = active[0], active[k - 1]
                together[a, b] += weight
                n = linear.expand(groups, active, k)
                if k == 1:
                    for i in range(n):
                        u[i] = row[active[i]] * pivots[active[i]]
                else:
                    place = pair_places[a, b]
                    pair_means(row, groups, pivots, gram, maps, place, a, b, v, u)
            else:
                diagonal = 0
                if complete_row and k > 0:
                    diagonal = groups[active[0] + 1] - groups[active[0]]
                n = linear.expand(groups, active, k)
                if n > room:
                    room = min(2 * n, C)
                    local, N = np.empty(room**2), np.empty(room**2)
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    gather(gram, active, n, local)
                elif observed is not None:
                    n_met = linear.fill_observed_gram(
                        V, seen, active, n, slots, met, n_met, known, local
                    )
                factorise(local, eta, n, diagonal, column, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
                invert(local, n, diagonal, inverse, N)
            for i in range(n):
                place = begin + places[active[i]]
                first[place] += weight * u[i]  # eq. 46
                activation[place] += weight
            for i in range(n):  # eq. 47
                scaled = weight * u[i]
                if known_system:
                    for j in range(i + 1):
                        sum_second[active[i], active[j]] += scaled * u[j]
                elif keep:
                    start = matrix + places[active[i]] * size
                    for j in range(i + 1):
                        value = weight * local[i * n + j] + scaled * u[j]
                        second[start + places[active[j]]] += value
                else:
                    for j in range(i + 1):
                        value = weight * local[i * n + j] + scaled * u[j]
                        sum_second[active[i], active[j]] += value


@kernel
def _add_covariances(groups, gram, pivots, together, sum_second):
    """Add M⁻¹ of states of one and two latents as often as they were met in complete rows."""
    G = len(groups) - 1
    room = 0
    for g in range(G):
        room = max(room, groups[g + 1] - groups[g])
    local, N = np.empty(4 * room * room), np.empty(4 * room * room)
    eta, column, inverse = np.zeros(2 * room), np.empty(2 * room), np.empty(2 * room)
    active = np.empty(2 * room + 2, np.int64)
    for a in range(G):
        for i in range(groups[a], groups[a + 1]):
            sum_second[i, i] += together[a, a] * pivots[i]
        for b in range(a + 1, G):
            if together[a, b] == 0.0:
                continue
            active[0], active[1] = a, b
            n = linear.expand(groups, active, 2)
            diagonal = groups[a + 1] - groups[a]
            gather(gram, active, n, local)
            factorise(local, eta, n, diagonal, column, inverse)
            invert(local, n, diagonal, inverse, N)
            for i in range(n):
                for j in range(i + 1):
                    sum_second[active[i], active[j]] += together[a, b] * local[i * n + j]


@kernel
def _best_additions(
    groups, V, gram, shift, pivots, constants, halves, shares, projections, complete, observed,
    states, counts, out,
):  # fmt: skip
    C, D = V.shape
    G = len(groups) - 1
    active = np.empty(C + 1, np.int64)
    room = 32
    local = np.empty(room**2)
    eta, u, column, inverse = np.empty(C), np.empty(C), np.empty(C), np.empty(C)
    row, z = np.empty(C, V.dtype), np.empty(C, V.dtype)
    scores, tops = np.empty(G, V.dtype), np.empty(GROUPS, V.dtype)
    if observed is not None:
        slots = np.full(C, -1)
        met = np.empty(C, np.int64)
        n_met = 0
        known = np.empty(C * (C + 1) // 2)
        seen = np.empty(D, V.dtype)
    for r in range(states.shape[0]):
        if observed is not None:
            for d in range(D):
                seen[d] = observed[r, d]
            n_met = linear.reset_observed_gram(slots, met, n_met)
        complete_row = observed is None or complete[r]
        own = r if len(halves) > 1 else 0
        for h in range(C):
            row[h] = projections[r, h] + shift[h]
        for p in range(counts[r]):
            k = active_latents(states, r, p, active)
            for g in range(G):
                scores[g] = -constants[own, g]
            for i in range(k):
                scores[active[i]] = -np.inf
            diagonal = 0
            if complete_row and k > 0:
                diagonal = groups[active[0] + 1] - groups[active[0]]
            n = linear.expand(groups, active, k)
            if complete_row and k == 1:
                for i in range(n):
                    u[i] = row[active[i]] * pivots[active[i]]
            else:
                if n > room:
                    room = min(2 * n, C)
                    local = np.empty(room**2)
                for i in range(n):
                    eta[i] = row[active[i]]
                if complete_row:
                    gather(gram, active, n, local)
                elif observed is not None:
                    n_met = linear.fill_observed_gram(
                        V, seen, active, n, slots, met, n_met, known, local
                    )
                factorise(local, eta, n, diagonal, column, inverse)
                solve_back(local, eta, n, diagonal, inverse, u)
            for h in range(C):
                z[h] = row[h]
            for i in range(n):
                h = active[i]
                c = V.dtype.type(u[i]) * shares[own, h]
                for g in range(C):
                    z[g] -= c * gram[h, g]
            for h in range(C):
                z[h] *= z[h] * halves[own, h]
            for g in range(G):
                total = scores[g]
                for h in range(groups[g], groups[g + 1]):
                    total += z[h]
                scores[g] = total
            best_scores(scores, tops, out, r, p)


def rotate(derived: Derived, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From rotated patterns, one a row, to those of the parameters."""
    out = np.empty_like(values)
    sizes = np.diff(derived.groups)
    for width in np.unique(sizes):
        places = derived.groups[:-1][sizes == width][:, None] + np.arange(width)
        out[places] = derived.back[places, :width] @ values[places]
    return out


class SubspaceModel(SpikeSlabModel):
    """Spike-and-slab coding with several patterns a latent, behind the model contract.

    Parameters
    ----------
    rank : int
        The most patterns a latent may have beside its mean.
    """

    starts_single = True

    def __init__(self, rank: int = 2) -> None:
        super().__init__()
        self.rank = rank

    def from_clusters(
        self,
        rows: NDArray[np.floating],
        clusters: Clusters,
        noise_variance: float | None = None,
        n_rows: int | None = None,
    ) -> SubspaceParams:
        """A latent for each cluster, of its mean and the directions in which its rows differ.

        A direction is taken if that is worth its parameters: rows whose variance along it is ρ
        times the noise's gain (ρ - 1 - log ρ) / 2 nats each. `n_rows` is how many there will be,
        if these are some of them.
        """
        counts, means, variances, vectors = principal_directions(rows, clusters)
        n_features = rows.shape[1]
        shares = counts / counts.sum()
        if noise_variance is None:  # what is smallest is noise
            noise_variance = float(shares @ variances[:, n_features // 2 :].mean(1))
        floor = linear.NOISE_FLOORS[rows.dtype] * float(np.square(rows, dtype=np.float64).mean())
        noise_variance = max(noise_variance, floor, np.finfo(float).tiny)
        ratios = np.maximum(variances / noise_variance, 1.0)
        gains = 0.5 * shares[:, None] * (n_rows or len(rows)) * (ratios - 1 - np.log(ratios))
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
        self, X: NDArray[np.floating], observed: Mask, n_latents: int, rng: np.random.Generator
    ) -> SubspaceParams:
        if observed is not None:
            X = np.where(observed, X, linear.observed_moments(X, observed)[0]).astype(X.dtype)
        chosen = X[rng.permutation(len(X))[:EXAMPLES]]
        clusters = cluster(chosen, n_latents, int(rng.integers(2**31)))
        return self.from_clusters(chosen, clusters, n_rows=len(X))

    def with_dictionary(
        self,
        examples: NDArray[np.float64],
        details: NDArray[np.float64],
        noise_variance: float,
    ) -> SubspaceParams:
        plain = super().with_dictionary(examples, details, noise_variance)
        return SubspaceParams(*plain, np.arange(len(plain.components) + 1))

    def prepare(self, params: SubspaceParams, dtype: DTypeLike) -> Derived:
        pi, groups = params.activation_probs, params.groups
        sigma = np.sqrt(params.noise_variance)
        spread = np.sqrt(params.slab_covariance)
        V = params.components * (spread / sigma)[:, None]
        shift = params.slab_means / spread
        back = np.zeros((len(V), int(np.diff(groups).max())))
        sizes = np.diff(groups)
        for width in np.unique(sizes):
            places = groups[:-1][sizes == width][:, None] + np.arange(width)
            blocks = V[places]
            _, vectors = np.linalg.eigh(blocks @ blocks.transpose(0, 2, 1))
            V[places] = vectors.transpose(0, 2, 1) @ blocks
            shift[places] = np.einsum("gpi,gp->gi", vectors, shift[places])
            back[places.ravel(), :width] = (spread[places][:, :, None] * vectors).reshape(-1, width)
        gram = (V @ V.T).astype(dtype)
        pivots = 1 + np.square(V).sum(1)
        logits = np.log(pi / (1 - pi))
        return Derived(
            groups,
            V.astype(dtype),
            (V / sigma).astype(dtype),
            gram,
            logits - 0.5 * np.add.reduceat(shift**2, groups[:-1]),
            shift.astype(dtype),
            (1 / pivots).astype(dtype),
            -0.5 * np.add.reduceat(np.log(pivots), groups[:-1]),
            solve_pairs(groups, gram),
            back,
            float(params.noise_variance),
            float(np.log1p(-pi).sum()),
            float(pi.sum()),
        )

    def n_latents(self, derived: Any) -> int:
        return len(derived.groups) - 1

    def groups(self, derived: Any) -> NDArray[np.int64] | None:
        own: NDArray[np.int64] = derived.groups
        return own

    def log_joints(self, derived: Any, rows: Rows, population: Population) -> None:
        _log_joints(
            derived.groups, derived.scaled, derived.gram, derived.bias, derived.shift,
            derived.pivots, derived.constants, derived.pairs, rows.projections, rows.base, rows.complete, rows.observed, *population,
        )  # fmt: skip

    def fill_moments(
        self, derived: Any, rows: Rows, posterior: Posterior, moments: Moments,
        stats: Any | None,
    ) -> None:  # fmt: skip
        sums: Any = (np.empty((0, 0)), np.empty((0, 0)))
        if stats is not None:
            sums = stats.linear.second, stats.together
        _moments(
            derived.groups, derived.scaled, derived.gram, derived.shift, derived.pivots,
            derived.pairs, rows.projections, rows.complete, rows.observed, *moments, *posterior,
            linear.negligible_weight(derived.scaled.dtype), *sums,
        )  # fmt: skip

    def empty_statistics(self, params: SubspaceParams) -> SubspaceStats:
        G = len(params.activation_probs)
        return SubspaceStats(linear.empty_stats(params.components, False), np.zeros((G, G)))

    def linear_part(self, stats: SubspaceStats) -> LinearStats:
        return stats.linear

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> None:
        rotated = params._replace(components=self.rotated_components(derived))
        super().accumulate(stats, rotated, derived, rows, posterior)

    def gathered(self, derived: Any, stats: Any) -> Any:
        sums = stats.linear
        _add_covariances(derived.groups, derived.gram, derived.pivots, stats.together, sums.second)
        stats.together[:] = 0.0
        second = rotate(derived, rotate(derived, linear.symmetric(sums.second)).T)
        sums.second[:] = np.tril(second)
        sums.first[:] = rotate(derived, sums.first[:, None])[:, 0]
        sums.cross[:] = rotate(derived, sums.cross)
        return stats

    def rotated_components(self, derived: Any) -> NDArray[np.float64]:
        """W with unit slab variances."""
        return derived.scaled.astype(np.float64) * np.sqrt(derived.noise_variance)

    def reconstruct(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rotated = params._replace(components=self.rotated_components(derived))
        return super().reconstruct(rotated, derived, rows, posterior)

    def best_additions(
        self, derived: Any, rows: Rows, genomes: Genomes, n_best: int
    ) -> NDArray[np.int32]:
        """Ranked by their gain, as if V were orthogonal, without the prior's log-odds."""
        squares = self.observed_squares(derived, rows)
        constants = derived.shift**2 + np.log1p(squares)
        out = empty_ranks(genomes, n_best)
        _best_additions(
            derived.groups, derived.scaled, derived.gram, derived.shift, derived.pivots,
            0.5 * np.add.reduceat(constants, derived.groups[:-1], axis=1),
            (0.5 / (1 + squares)).astype(squares.dtype),
            squares / (np.diag(derived.gram) + np.finfo(squares.dtype).tiny),
            rows.projections, rows.complete, rows.observed, *genomes, out,
        )  # fmt: skip
        return out

    def update(self, params: Any, stats: Any) -> Any:
        new = super().update(params._replace(), stats)
        pi = new.activation_probs[params.groups[:-1]]
        return SubspaceParams(
            new.components, pi, new.noise_variance, new.slab_means, new.slab_covariance,
            params.groups,
        )  # fmt: skip

    def settled(self, stats: Any) -> Any:
        return stats

    def codes(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior probability that a latent is active: its patterns have no common amount."""
        out = Model.codes(self, params, derived, rows, posterior)
        out[linear.nothing_observed(rows.observed)] = params.activation_probs
        return out

    def prior(self, params: SubspaceParams) -> Prior:
        sizes = np.diff(params.groups)
        pi = np.repeat(params.activation_probs, sizes)
        latent = np.repeat(np.arange(len(sizes)), sizes)
        mu, W = params.slab_means, params.components
        # Cov of s_g z_g: π (1 - π) μ μᵀ + π ψ within a latent, nothing between latents.
        covariance = np.outer(pi * mu, (1 - pi) * mu) * (latent[:, None] == latent)
        covariance[np.diag_indices(len(pi))] += pi * params.slab_covariance
        variance = np.einsum("gd,gh,hd->d", W, covariance, W, optimize=True)
        return Prior(params.activation_probs, (pi * mu) @ W, variance)

    def sample(
        self, params: SubspaceParams, n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        states = rng.random((n, len(params.activation_probs))) < params.activation_probs
        active = np.repeat(states, np.diff(params.groups), axis=1)
        slab = rng.standard_normal(active.shape) * np.sqrt(params.slab_covariance)
        return linear.observe(active * (params.slab_means + slab), params, rng), states

    def canonical(self, params: Any) -> Any:
        return params
