"""Correlation of noise between neighbours and between channels, from the flattest blocks.

Stationary noise with the autocorrelation r gives a cosine coefficient k the power
S_k = Σ_lag A_k,lag r_lag, where A only depends on the basis. So powers averaged over flat blocks
give r by least squares; block means and slopes, which shading moves, are left out without a bias.
Blocks are chosen by every other coefficient (as on a chessboard) and measured in those between.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evoem.images.noise_blocks import Blocks, cosines

Array = NDArray[np.float64]

SIDE, STEP = 16, 8
# Lags that are solved for and the lowest frequency used for them: more lags need lower frequencies,
# where texture is.
SHORT, MEDIUM, LONG = (3, 4), (5, 3), (9, 2)
# An autocorrelation that falls off like powers, the second lag being this much of the first one
# squared, has a long tail if it is not yet this small at the fourth; any other ends soon.
LIKE_POWERS, TAIL = 0.85, 0.1
FLATTEST = 100
REWEIGHTED = 4
# Channels are compared from this frequency on: below, what they share is the picture.
ABOVE_SHADING, HIGH = 2, 10
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

    Powers are in units of the variance that each block is given. Channels are compared at nearly
    all frequencies, and at high ones: there they share less texture, which is enough if noise is
    white.
    """

    spectra: Array  # (channels, side, side)
    between: Array
    between_high: Array

    @property
    def smooth(self) -> bool:
        """Whether there is next to nothing but low frequencies."""
        spectrum = self.spectra.mean(0)
        frequency = np.add.outer(np.arange(len(spectrum)), np.arange(len(spectrum)))
        return bool(np.median(spectrum) < SMOOTH * spectrum[frequency >= 2].max())


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
    side = relative.shape[-1]
    frequency = np.add.outer(np.arange(side), np.arange(side))
    low = (frequency >= 1) & (frequency <= side // 2)
    power = (relative**2).mean(0)
    spectra = np.empty((len(channels), side, side))
    products = np.zeros((2, len(channels), len(channels)))
    for parity in (0, 1):
        choosing, measured = frequency % 2 == parity, frequency % 2 != parity
        order = np.argsort(power[:, low & choosing].mean(1), kind="stable")
        flattest = order[:FLATTEST]
        spectra[:, measured] = (relative[:, flattest] ** 2).mean(1)[:, measured]
        for number, lowest in enumerate((ABOVE_SHADING, HIGH)):
            compared = relative[:, flattest][:, :, measured & (frequency >= lowest)]
            compared = compared.reshape(len(channels), -1)
            products[number] += compared @ compared.T
    deviation = np.sqrt(products.diagonal(0, 1, 2))
    between = products / (deviation[:, :, None] * deviation[:, None])
    return Flattest(spectra, between[0], between[1])


def solve_lags(spectrum: Array, n_lags: int, lowest: int) -> Array:
    """Covariances at lags (0…n_lags)² that explain the powers from a frequency on."""
    side = len(spectrum)
    used = np.add.outer(np.arange(side), np.arange(side)) >= lowest
    design = power_of_lags(side, n_lags)[used].reshape(used.sum(), -1)
    power = spectrum[used]
    expected = np.full_like(power, power.mean())
    for _ in range(REWEIGHTED):  # errors are relative to the power expected
        weight = 1 / np.maximum(expected, LEAST_POWER * power.mean()) ** 2
        weighted = design * weight[:, None]
        solution = np.linalg.solve(weighted.T @ design, weighted.T @ power)
        expected = design @ solution
    return np.asarray(solution.reshape(n_lags + 1, n_lags + 1))


def autocorrelations(spectra: Array) -> Array:
    """Correlations of each channel at as many lags as matter."""

    def solved(n_lags: int, lowest: int) -> Array:
        covariances = np.stack([solve_lags(spectrum, n_lags, lowest) for spectrum in spectra])
        return covariances / covariances[:, :1, :1]

    medium = solved(*MEDIUM)
    along = (medium[:, 0] + medium[:, :, 0]).mean(0) / 2
    if along[2] < LIKE_POWERS * along[1] ** 2 or along[1] < 0:
        return solved(*SHORT)
    return solved(*LONG) if along[4] > TAIL else medium


def kernel(correlation: Array) -> Array:
    """Correlations at lags −n…n of rows and columns, without the outer ones that are negligible."""
    n_lags = len(correlation) - 1
    while n_lags > 1:
        outer = np.r_[correlation[n_lags, : n_lags + 1], correlation[:n_lags, n_lags]]
        if np.abs(outer).max() > NEGLIGIBLE:
            break
        n_lags -= 1
    lags = np.abs(np.arange(-n_lags, n_lags + 1))
    return np.asarray(np.clip(correlation[np.ix_(lags, lags)], -1, 1))


def block_spectrum(correlation: Array, side: int) -> Array:
    """Powers of the coefficients of a block, 1 for white noise."""
    n_lags = min(len(correlation), side) - 1
    near = correlation[: n_lags + 1, : n_lags + 1]
    power = np.einsum("ijab,ab->ij", power_of_lags(side, n_lags), near)
    return np.asarray(np.maximum(power, LEAST_POWER))
