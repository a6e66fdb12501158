"""Common parts of models whose latents superpose linearly under Gaussian noise: y ≈ W c.

c is s for binary sparse coding and s⊙z for spike-and-slab coding. Statistics and estimates need
only its posterior moments, which are in `linear_moments`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from evoem import validation
from evoem.models import by_feature, linear_moments
from evoem.models.all_rows import AllRows
from evoem.models.base import Model, Posterior, Prior
from evoem.models.by_feature import PROXIMITY
from evoem.models.linear_moments import (
    NOISE_FLOORS,
    LinearStats,
    Moments,
    add_moments,
    empty_stats,
    moment_parts,
    negligible_weight,
)
from evoem.runtime.communicator import ALONE, Communicator
from evoem.runtime.linalg import cholesky, solve
from evoem.validation import Mask, Positions

# Rows go through the matrix product in multiples of this, so that BLAS treats each row the same way
# whatever rows it comes with, and the result of a row does not depend on them.
ROW_MULTIPLE = 16
PROBABILITY_FLOOR = 1e-8
AUTHORS_PROBABILITY_FLOOR = 5e-5


def least_noise(rows: AllRows) -> float:
    """The smallest noise variance that is allowed for data of this scale."""
    return NOISE_FLOORS[rows.X.dtype] * rows.mean_square()


def slice_rows(rows: Any, part: slice | NDArray[np.int64]) -> Any:
    """The same NamedTuple of arrays, maybe nested, for some of the rows."""
    if rows is None or isinstance(rows, np.ndarray):
        return rows if rows is None else rows[part]
    return type(rows)(*(slice_rows(field, part) for field in rows))


def row_products(X: NDArray[np.floating], matrix: NDArray[np.floating]) -> NDArray[np.floating]:
    """X @ matrix.T."""
    n_rows = len(X)
    padding = -n_rows % ROW_MULTIPLE
    if padding:
        X = np.concatenate([X, np.zeros((padding, X.shape[1]), X.dtype)])
    return (X @ matrix.T)[:n_rows]


class Rows(NamedTuple):
    """What log-joints need about a block of rows."""

    projections: NDArray[np.floating]  # (n_rows, H)  W y / σ², scaled as the model needs it
    base: NDArray[np.float64]  # (n_rows,)  all of the log-joint that no latent changes
    ceiling: NDArray[np.float64]  # (n_rows,)  the same without the data, see `evoem.models.ceiling`
    constants: NDArray[np.float64]  # (n_rows,)  C(Θ) of app:lpj
    complete: NDArray[np.bool_]  # (n_rows,)  nothing is missing
    X: NDArray[np.floating]  # zeros where missing
    observed: Mask | None  # (n_rows, D), None if nothing is missing anywhere
    # If the prior depends on where a row lies: what then takes the place of the model's own bias.
    sites: Any = None  # `subspace.spatial_prior.Sites`
    bias: NDArray[np.float64] | None = None  # (n_rows, H)
    logits: NDArray[np.float64] | None = None  # (n_rows, H)  of this the log-odds


def prepare_rows(
    projector: NDArray[np.floating],
    noise_variance: float,
    constant_variance: float,
    log_prior: float,
    X: NDArray[np.floating],
    observed: Mask | None,
) -> Rows:
    """Rows for a projector V / σ, V the scaled dictionary: projections X Vᵀ / σ.

    `constant_variance` is the variance that belongs to C(Θ) in this model: σ² or one (app:lpj).
    """
    n_features = X.shape[1]
    counts: Any = n_features if observed is None else observed.sum(1)
    base = np.einsum("nd,nd->n", X, X, dtype=np.float64)
    base *= -0.5 / noise_variance
    ceiling = np.empty(len(X))
    ceiling[:] = log_prior - 0.5 * counts * np.log(2 * np.pi * noise_variance)
    base += ceiling
    constants = np.empty(len(X))
    constants[:] = log_prior - 0.5 * counts * np.log(2 * np.pi * constant_variance)
    complete = np.empty(len(X), np.bool_)
    complete[:] = counts == n_features
    return Rows(row_products(X, projector), base, ceiling, constants, complete, X, observed)


def update_dictionary(
    stats: LinearStats,
    second: NDArray[np.float64],
    W: NDArray[np.float64],
    old_variance: float,
    least_variance: float = 0.0,
) -> tuple[NDArray[np.float64], float]:
    """The W and σ² that maximise the bound, given the moments; `second` is Σ⟨c cᵀ⟩, of which the
    lower triangle is used. σ² stays above the least one.

    With statistics by feature this also holds with missing values. Without, the missing y are
    latent: W and σ² then maximise a lower bound of the bound that touches it at the old W, so the
    bound does not fall either way. σ² is an average over observed entries.
    """
    if len(stats.observed_second):
        new, pulled = by_feature.new_dictionary(stats, second, W)
        return new, noise_left(stats, new, pulled, old_variance, least_variance)
    pull = PROXIMITY * (np.trace(second) / len(second) + np.finfo(float).tiny)
    while True:  # ends: a large enough pull makes any matrix positive definite
        try:
            matrix = second.copy()
            np.fill_diagonal(matrix, np.diag(second) + pull)
            cholesky(matrix)
            break
        except LinAlgError:
            pull *= 100
    new = solve(matrix, stats.cross + pull * W)  # app:mstep_equations: W
    return new, noise_left(stats, new, pull * (W - new), old_variance, least_variance)


def noise_left(
    stats: LinearStats,
    new: NDArray[np.float64],
    pulled: NDArray[np.float64],
    old: float,
    least: float = 0.0,
) -> float:
    """σ² of a new W, for which Σ⟨c cᵀ⟩ W = Σ⟨c yᵀ⟩ + `pulled`."""
    # Σ⟨|y - W c|²⟩ = Σ⟨yᵀy⟩ - 2 Tr(W Σ⟨c yᵀ⟩) + Tr(Wᵀ Σ⟨c cᵀ⟩ W), with the system put in.
    residual = float(stats.data_square) - np.vdot(new, stats.cross) + np.vdot(pulled, new)
    residual -= stats.filled[1].sum()  # printed: σ² is an average over what was observed
    return noise_variance(stats, float(residual), old, least)


def noise_variance(stats: LinearStats, residual: float, old: float, least: float = 0.0) -> float:
    """σ² from a sum of squared residuals, not below the accuracy of that sum, nor below `least`.

    An old value below that floor is kept: raising σ² might lower the bound.
    """
    n_observed = float(stats.n_observed)
    floor = min(max(float(stats.floor) / n_observed, least), old)
    return max(residual / n_observed, floor, np.finfo(float).tiny)


def authors_noise_variance(
    stats: LinearStats, residual: float, old: float, least: float = 0.0
) -> float:
    """σ² as the authors' programs average the squared residuals of observed values.

    If anything is missing, missing values count in the denominator, and for every observed one the
    old σ² is added to the numerator. The fixed point is the average over observed values if half of
    them are missing, and lies below it if more are.
    """
    n_observed, n_features = float(stats.n_observed), stats.cross.shape[1]
    n_values = float(stats.n_rows) * n_features
    if n_observed == n_values:
        return noise_variance(stats, residual, old, least)
    added = residual + n_observed * old
    return noise_variance(stats, added * n_observed / n_values, old, least)


def clip_probabilities(
    probabilities: NDArray[np.float64], least: float = PROBABILITY_FLOOR
) -> NDArray[np.float64]:
    """Probabilities clipped to [least, 1 - PROBABILITY_FLOOR], where the bound is highest."""
    return np.clip(probabilities, least, 1.0 - PROBABILITY_FLOOR)


def observe(c: NDArray[np.float64], params: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noisy data y ~ N(W c, σ² 1)."""
    clean: NDArray[np.float64] = c @ params.components
    sigma = float(np.sqrt(params.noise_variance))
    return clean + sigma * rng.standard_normal(clean.shape)


def few_active(*sizes: int) -> NDArray[np.float64]:
    """Activation probabilities with which two latents of each kind are expected to be active."""
    return np.concatenate([np.full(size, min(2.0 / max(size, 1), 0.5)) for size in sizes])


def observed_moments(rows: AllRows) -> tuple[NDArray[np.float64], float]:
    """Mean of each feature, and their variance averaged over the features, of observed values.

    Features seen at most once have no variance; if that leaves none, as with a single row or equal
    rows, the variance is that of all values together.
    """
    counts, sums = rows.counts(), rows.sums()
    overall = sums.sum() / counts.sum()
    mean = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    squares = rows.squares(mean)
    often = counts > 1
    variance = float((squares[often] / counts[often]).mean()) if often.any() else 0.0
    if variance <= np.finfo(float).eps * rows.mean_square():
        variance = float(rows.squares(overall).sum() / counts.sum())
    return mean, max(variance, least_noise(rows))


def nothing_observed(observed: Mask | None) -> NDArray[np.int64]:
    """Rows without any observed value, whose posterior is exactly the prior."""
    return np.empty(0, np.int64) if observed is None else np.flatnonzero(~observed.any(1))


class LinearModel(Model):
    """Common base of binary sparse coding, spike-and-slab coding and subspaces.

    Parameters
    ----------
    init : {"mean", "data"}
        Initial dictionary: the mean of the data plus noise, as in the paper, or random data points.
    updates : {"monotone", "printed", "authors"}
        M-steps that never lower the bound, those of app:mstep_equations, or those of the authors'
        programs.
    least_noise_variance : float
        Lower limit of σ², if one is known: a dictionary that explains noise would lower it.
    by_feature : bool
        Whether each feature is learnt only from the rows in which it was observed, see
        `evoem.models.by_feature`: fewer iterations where much is missing, but more memory.
    """

    # Options that are one of several words.
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "init": ("mean", "data"),
        "updates": ("monotone", "printed", "authors"),
    }

    def __init__(
        self,
        init: str = "mean",
        updates: str = "monotone",
        least_noise_variance: float = 0.0,
        by_feature: bool = False,
    ) -> None:
        self.init = validation.choice("init", init, self.choices["init"])
        self.updates = validation.choice("updates", updates, self.choices["updates"])
        self.least_noise_variance = validation.real(
            "least_noise_variance", least_noise_variance, 0.0
        )
        self.by_feature = validation.boolean("by_feature", by_feature)
        if self.by_feature and self.printed:
            raise ValueError(
                "by_feature must be False for the paper's updates, which fill in what is missing; "
                "got True."
            )

    @property
    def printed(self) -> bool:
        """Whether M-steps are those of the paper, as printed or as in the authors' programs."""
        return self.updates != "monotone"

    @property
    def as_authors(self) -> bool:
        """Whether M-steps are those of the authors' programs."""
        return self.updates == "authors"

    @property
    def least_probability(self) -> float:
        """Activation probabilities stay at or above this."""
        return AUTHORS_PROBABILITY_FLOOR if self.as_authors else PROBABILITY_FLOOR

    @abstractmethod
    def fill_moments(
        self, derived: Any, rows: Rows, posterior: Posterior, moments: Moments, stats: Any
    ) -> None:
        """Compute the moments of c; those without room go to `stats`, unless that is None."""

    @abstractmethod
    def prior(self, params: Any) -> Prior:
        """What the model expects of a row in which nothing was observed."""

    def constant_variance(self, derived: Any) -> float:
        """The variance that belongs to C(Θ) (app:lpj)."""
        return float(derived.noise_variance)

    def prepare_rows(
        self,
        derived: Any,
        X: NDArray[np.floating],
        observed: Mask | None,
        positions: Positions = None,
    ) -> Rows:
        self._refuse_positions(positions)
        return prepare_rows(
            derived.projector,
            derived.noise_variance,
            self.constant_variance(derived),
            derived.log_prior,
            X,
            observed,
        )

    def groups(self, derived: Any) -> NDArray[np.int64] | None:
        """Where the continuous latents of each binary one start, if it has several."""
        return None

    def log_constants(self, derived: Any, rows: Rows) -> NDArray[np.float64]:
        return rows.constants

    def observed_squares(self, derived: Any, rows: Rows) -> NDArray[np.floating]:
        """Σ_d V² over observed values: (n_rows, H), or (1, H) if everything was observed."""
        if rows.observed is None:
            return np.diag(derived.gram)[None]
        V = derived.scaled
        return row_products(rows.observed.astype(V.dtype), V**2)

    def empty_statistics(self, params: Any) -> Any:
        """Statistics of no rows."""
        return empty_stats(params.components, self.printed, self.by_feature)

    def linear_part(self, stats: Any) -> LinearStats:
        """The statistics that all linear models have."""
        own: LinearStats = stats
        return own

    def _each_part(
        self,
        derived: Any,
        rows: Rows,
        posterior: Posterior,
        keep: NDArray[np.bool_],
        stats: Any = None,
    ) -> Iterator[tuple[slice, Rows, Moments]]:
        negligible = negligible_weight(derived.scaled.dtype)
        size, groups = len(derived.scaled), self.groups(derived)
        for part, moments in moment_parts(posterior, size, negligible, keep, groups):
            some = slice_rows(rows, part)
            self.fill_moments(derived, some, slice_rows(posterior, part), moments, stats)
            yield part, some, moments

    def accumulate(
        self, stats: Any, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> None:
        """Add the statistics of a block of rows, complete ones by faster code.

        If only few are complete all take the slower path: selecting the others would copy them.
        """
        incomplete = np.flatnonzero(~rows.complete)
        if 2 * len(incomplete) < len(rows.X):
            self.add_complete_rows(stats, derived, rows._replace(observed=None), posterior)
            if len(incomplete) == 0:
                return
            rows, posterior = slice_rows(rows, incomplete), slice_rows(posterior, incomplete)
        rows = rows._replace(complete=np.zeros(len(rows.X), np.bool_))
        self.add_rows(stats, params, derived, rows, posterior)

    def add_complete_rows(self, stats: Any, derived: Any, rows: Rows, posterior: Posterior) -> None:
        """Add the statistics of the rows in which nothing is missing."""
        raise self._undefined("add_complete_rows")

    def add_rows(
        self, stats: Any, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> None:
        """Add the statistics of rows, from the moments of each row."""
        sums = self.linear_part(stats)
        for _, some, moments in self._each_part(derived, rows, posterior, ~rows.complete, stats):
            if self.by_feature and some.observed is not None:
                by_feature.add_observed(sums, moments, some.X, some.observed)
            else:
                add_moments(sums, moments, some, params.components, self.printed)

    def reconstruct(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of W c, the data without its noise."""
        mean, variance = np.empty(rows.X.shape), np.empty(rows.X.shape)
        keep = np.ones(len(rows.X), np.bool_)
        for part, some, moments in self._each_part(derived, rows, posterior, keep):
            mean[part], variance[part] = linear_moments.reconstruct(
                moments, len(some.X), params.components
            )
        unseen = nothing_observed(rows.observed)
        if len(unseen):
            _, mean[unseen], variance[unseen] = self.prior(params)
        return mean, variance

    def codes(
        self, params: Any, derived: Any, rows: Rows, posterior: Posterior
    ) -> NDArray[np.float64]:
        """Posterior mean of c."""
        out = np.empty((len(rows.X), derived.n_latents))
        keep = np.ones(len(rows.X), np.bool_)
        for part, some, moments in self._each_part(derived, rows, posterior, keep):
            out[part] = linear_moments.codes(moments, len(some.X), out.shape[1])
        unseen = nothing_observed(rows.observed)
        if len(unseen):
            out[unseen] = self.prior(params).codes
        return out

    def with_dictionary(
        self,
        examples: NDArray[np.float64],
        details: NDArray[np.float64],
        noise_variance: float,
    ) -> Any:
        """Initial parameters: latents that look like data points, and how these differ.

        A row of the data has one or two latents of each kind.
        """
        raise self._undefined("with_dictionary")

    def allowed(
        self,
        params: Any,
        X: NDArray[np.floating],
        observed: Mask | None,
        comm: Communicator = ALONE,
    ) -> Any:
        """The parameters a user has given, moved into the range that updates keep to."""
        least = least_noise(AllRows(X, observed, comm))
        return params._replace(noise_variance=np.maximum(params.noise_variance, least))

    def initial_dictionary(
        self, rows: AllRows, n_latents: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], float]:
        """Dictionary and noise variance to start from (subsec:verification)."""
        mean, variance = observed_moments(rows)
        if self.init == "data":
            points, seen = rows.draw(rng, n_latents)
            return np.where(seen, points, mean), variance
        noise = 0.25 * np.sqrt(variance) * rng.standard_normal((n_latents, len(mean)))
        return mean + noise, variance
