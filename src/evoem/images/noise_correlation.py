"""Correlation of noise between neighbours and between channels, from the flattest blocks.

Stationary noise with the autocorrelation r gives a cosine coefficient k the power
S_k = Σ_lag A_k,lag r_lag, where A only depends on the basis, and the same holds for the product of
two channels. So powers averaged over flat blocks give r by least squares; block means and slopes,
which shading moves, are left out without a bias. Channels of a camera differ: a mosaic is filled in
by other rules for green than for red and blue, and what channels share is mostly at high
frequencies. So each pair has its own correlations.
Blocks are chosen by every other coefficient (as on a chessboard) and measured in those between.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from evoem.images.noise_blocks import Blocks, cosines

Array = NDArray[np.float64]

SIDE, STEP = 16, 8
# Lags that are solved for; correlations expected at the first; how many lags on they are a third
# of that.
N_LAGS, LIKELY, REACH = 8, 0.6, 2.0
# Power of texture relative to noise at the lowest frequency of the flattest blocks.
TEXTURE = 1.0
FLATTEST, SHARE_FLATTEST = 100, 0.03
REWEIGHTED = 4
# Blocks are flat by the power of the lowest band. Of a few of the flattest another one still has so
# many times the power that most of these have there: stripes are as flat as noise at others.
BANDS, CANDIDATES, STRIPED = (1, 9, 15, 21, 31), 2, 1.5
# Channels whose neighbours are independent are compared from this frequency on: below, what they
# share is the picture.
HIGH = 17
# The three highest bands of frequencies begin and end here.
HIGHEST_BANDS = (14, 17, 21, 31)
# A coefficient has at least this share of the mean power: dividing by less would amplify rounding.
LEAST_POWER = 0.02
# Pictures are smooth if the middle frequencies have less than this of the power of low ones.
SMOOTH = 1e-3
# Lags whose correlations are all below this are left out of the kernel.
NEGLIGIBLE = 0.03


def power_of_lags(side: int, n_lags: int) -> Array:
    """Power in each coefficient per unit of correlation at lags (0…n_lags)², (side, side, n, n).

    Correlations are taken to be the same at lags ±rows and ±columns.
    """
    basis = cosines(side)
    along = np.empty((side, n_lags + 1))
    for lag in range(n_lags + 1):
        overlap = (basis[:, : side - lag] * basis[:, lag:]).sum(1)
        along[:, lag] = overlap if lag == 0 else 2 * overlap
    return np.asarray(np.einsum("ia,jb->ijab", along, along))


@dataclass(frozen=True)
class Flattest:
    """What the flattest blocks show.

    Powers are in units of the variance that each block is given. Channels are compared at high
    frequencies as well: there they share less texture, which is enough if noise is white.
    """

    powers: Array  # (side, side, channels, channels)
    between_high: Array

    @property
    def smooth(self) -> bool:
        """Whether there is next to nothing but low frequencies."""
        spectrum, frequency = self._spectrum()
        return bool(np.median(spectrum) < SMOOTH * spectrum[frequency >= 2].max())

    @property
    def high_powers(self) -> tuple[float, float, float]:
        """Powers of the three highest bands of frequencies."""
        spectrum, frequency = self._spectrum()
        middle, high, highest = (
            float(spectrum[(frequency >= low) & (frequency < end)].mean())
            for low, end in pairwise(HIGHEST_BANDS)
        )
        return middle, high, highest

    def _spectrum(self) -> tuple[Array, NDArray[np.intp]]:
        """Powers of the average channel, and frequencies."""
        spectrum = self.powers.diagonal(0, 2, 3).mean(-1)
        return spectrum, np.add.outer(np.arange(len(spectrum)), np.arange(len(spectrum)))


def measure_flattest(channels: list[Blocks], variances: list[Array]) -> Flattest:
    """Average powers and products of channels over the flattest blocks that all channels have."""
    common = np.logical_and.reduce([blocks.usable for blocks in channels])
    relative = np.stack(
        [
            blocks.coefficients[common[blocks.usable]]
            / np.sqrt(variance[common[blocks.usable]])[:, None, None]
            for blocks, variance in zip(channels, variances, strict=True)
        ]
    )
    n_channels, n_blocks, side, _ = relative.shape
    frequency = np.add.outer(np.arange(side), np.arange(side))
    power = (relative**2).mean(0)
    powers = np.empty((side, side, n_channels, n_channels))
    for parity in (0, 1):
        choosing, measured = frequency % 2 == parity, frequency % 2 != parity
        low, *high = (
            power[:, choosing & (frequency >= first) & (frequency < end)].mean(1)
            for first, end in pairwise(BANDS)
        )
        flattest = without_stripes(
            np.argsort(low, kind="stable"), high, max(FLATTEST, int(SHARE_FLATTEST * n_blocks))
        )
        chosen = relative[:, flattest][:, :, measured].transpose(2, 0, 1)
        powers[measured] = chosen @ chosen.transpose(0, 2, 1) / len(flattest)
    return Flattest(powers, _unit_diagonal(powers[frequency >= HIGH].mean(0)))


def without_stripes(
    order: NDArray[np.intp], high: list[Array], n_flattest: int
) -> NDArray[np.intp]:
    """The first so many of some blocks that are as flat at high frequencies as most of these."""
    candidates = order[: CANDIDATES * n_flattest]
    flat = np.ones(len(candidates), np.bool_)
    for power in high:
        flat &= power[candidates] <= STRIPED * np.median(power[order[:n_flattest]])
    return candidates[flat][:n_flattest]


def _unit_diagonal(products: Array) -> Array:
    deviation = np.sqrt(products.diagonal())
    return np.asarray(products / np.outer(deviation, deviation))


def solve_lags(powers: Array, n_blocks: int = FLATTEST) -> Array:
    """Covariances at lags (0…N_LAGS)² that explain the powers of blocks, from the slopes on.

    `powers` are (side, side, channels, channels), covariances (channels, channels, lags, lags).
    Least squares with errors relative to the power expected: those of an average of blocks, and
    those of texture, whose power falls with the square of the frequency. Correlations are expected
    to be small at long lags, or low frequencies, where texture is, would be taken for them.
    """
    side, n_channels = len(powers), powers.shape[2]
    frequency = np.add.outer(np.arange(side), np.arange(side))
    used = frequency >= 1
    error = np.sqrt(2 / n_blocks + (TEXTURE / frequency[used] ** 2) ** 2)
    design = power_of_lags(side, N_LAGS)[used].reshape(used.sum(), -1)
    longest = np.maximum.outer(np.arange(N_LAGS + 1), np.arange(N_LAGS + 1)).ravel()
    likely = np.where(longest == 0, np.inf, LIKELY * np.exp(-(longest - 1.0) / REACH))
    seen = powers[used]
    typical = seen.mean(0).diagonal()
    variance, expected = typical, np.broadcast_to(typical, (len(seen), n_channels))
    solution = np.empty((n_channels, n_channels, N_LAGS + 1, N_LAGS + 1))
    for _ in range(REWEIGHTED):
        size = np.sqrt(np.maximum(expected, LEAST_POWER * typical)) * np.sqrt(error)[:, None]
        for a, b in product(range(n_channels), repeat=2):
            weighted = design / (size[:, a] * size[:, b])[:, None] ** 2
            prior = np.diag(1 / (likely**2 * variance[a] * variance[b]))
            lags = np.linalg.solve(weighted.T @ design + prior, weighted.T @ seen[:, a, b])
            solution[a, b] = lags.reshape(N_LAGS + 1, N_LAGS + 1)
        own = solution[range(n_channels), range(n_channels)]
        variance, expected = own[:, 0, 0], design @ own.reshape(n_channels, -1).T
    return solution


def covariances(powers: Array) -> Array | None:
    """Covariances of pairs of channels at lags (0…n)², (channels, channels, lags, lags).

    None if powers are so steep that no noise explains them.
    """
    solution = solve_lags(powers)
    if solution[..., 0, 0].diagonal().min() <= 0:
        return None
    # Solved for one by one, they need not be those of any noise: what channels share is too much.
    deviation = np.sqrt(solution[..., 0, 0].diagonal())
    least = float(np.linalg.eigvalsh(solution[..., 0, 0] / np.outer(deviation, deviation))[0])
    solution[~np.eye(len(solution), dtype=bool)] /= 1 - min(least, 0.0)
    return solution


def unit_variance(covariances: Array) -> Array:
    """Correlations from covariances."""
    deviation = np.sqrt(covariances[..., 0, 0].diagonal())
    return np.asarray(covariances / np.outer(deviation, deviation)[..., None, None])


def kernel(correlation: Array) -> Array:
    """Correlations at lags −n…n of rows and columns, without the outer ones that are negligible.

    `correlation` is at lags (0…n)² in its last two dimensions.
    """
    n_lags = correlation.shape[-1] - 1
    while n_lags > 1:
        outer = correlation[..., n_lags, : n_lags + 1], correlation[..., :n_lags, n_lags]
        if max(np.abs(lags).max() for lags in outer) > NEGLIGIBLE:
            break
        n_lags -= 1
    return mirrored(correlation[..., : n_lags + 1, : n_lags + 1])


def mirrored(correlation: Array) -> Array:
    """Correlations at lags −n…n of rows and columns, from those at lags 0…n."""
    n_lags = correlation.shape[-1] - 1
    lags = np.abs(np.arange(-n_lags, n_lags + 1))
    return np.asarray(np.clip(correlation[..., lags, :][..., lags], -1, 1))


def block_spectrum(correlation: Array, side: int) -> Array:
    """Powers of the coefficients of a block, 1 for white noise."""
    n_lags = min(len(correlation), side) - 1
    near = correlation[: n_lags + 1, : n_lags + 1]
    power = np.einsum("ijab,ab->ij", power_of_lags(side, n_lags), near)
    return np.asarray(np.maximum(power, LEAST_POWER))
