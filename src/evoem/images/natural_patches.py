"""Patches of natural images, prepared as in the paper (subsec:scalability).

`binary_patches` are for noisy-OR, `whitened_patches` for models of continuous data.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.images import patches

# A patch has structure if its standard deviation is at least this share of the image's: the paper
# says that patches without it were removed, not how they were told.
LEAST_STRUCTURE = 0.1
# More positions are drawn than patches are wanted, by this factor at a time, until enough are kept.
DRAWN = 2


class Whitening(NamedTuple):
    """A linear map after which features are uncorrelated and of unit variance."""

    mean: NDArray[np.float64]  # (n_features,)
    matrix: NDArray[np.float64]  # (n_features, n_features), symmetric

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Whitened rows."""
        whitened: NDArray[np.float64] = (X - self.mean) @ self.matrix
        return whitened


def clamp_brightest(image: NDArray[Any], share: float) -> NDArray[np.float64]:
    """The image with a share of its pixels, the brightest, clamped to the brightest of the rest.

    >>> clamp_brightest(np.array([[1, 2, 3, 40]]), 0.25)
    array([[1., 2., 3., 3.]])
    """
    share = validation.real("share", share, 0, 1)
    values = np.asarray(image, np.float64)
    n_bright = round(share * values.size)
    if n_bright == 0:
        return values.copy()
    if n_bright >= values.size:
        raise ValueError(f"share must leave some pixels as they are; got {share}.")
    kept = values.size - n_bright - 1
    brightest = float(np.partition(values, kept, axis=None)[kept])
    return np.minimum(values, brightest)


def random_patches(
    image: NDArray[Any], patch_size: int, n_patches: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Square patches of a grey image (rows, columns) from random places: (n_patches, n_pixels)."""
    values = np.asarray(image, np.float64)
    if values.ndim != 2:
        raise ValueError(f"image must be 2-D; got {values.ndim} dimensions.")
    validation.integer("patch_size", patch_size, 1, min(values.shape), " (the image's width)")
    validation.integer("n_patches", n_patches, 1)
    grid = patches.regular_grid((*values.shape, 1), patch_size)
    numbers = rng.integers(grid.n_patches, size=n_patches)
    return np.asarray(patches.cut(values[..., None], grid, numbers))


def unit_range(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows scaled to [0, 1], each by its own darkest and brightest pixel; flat ones are zero.

    >>> unit_range(np.array([[2.0, 3.0, 4.0], [5.0, 5.0, 5.0]]))
    array([[0. , 0.5, 1. ],
           [0. , 0. , 0. ]])
    """
    low, high = X.min(1, keepdims=True), X.max(1, keepdims=True)
    scaled: NDArray[np.float64] = (X - low) / np.where(high > low, high - low, 1.0)
    return scaled


def binary_patches(
    image: NDArray[Any], patch_size: int, n_patches: int, *, clamp: float = 0.01, seed: int = 0
) -> NDArray[np.float64]:
    """Patches of zeros and ones: each pixel is one with a probability given by its brightness.

    Parameters
    ----------
    image : ndarray of shape (rows, columns)
    patch_size, n_patches : int
    clamp : float
        Share of the pixels that are taken to be as bright as the brightest of the others.
    seed : int

    Returns
    -------
    ndarray of shape (n_patches, patch_size**2)
        Data for `NoisyOr`.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.images.natural_patches import binary_patches
    >>> image = np.add.outer(np.arange(30.0), np.zeros(40))
    >>> X = binary_patches(image, 4, 500)
    >>> X.shape, [round(float(row), 1) for row in X.reshape(500, 4, 4).mean((0, 2))]
    ((500, 16), [0.0, 0.3, 0.7, 1.0])
    """
    rng = np.random.default_rng(seed)
    grey = random_patches(clamp_brightest(image, clamp), patch_size, n_patches, rng)
    return (rng.random(grey.shape) < unit_range(grey)).astype(np.float64)


def zca(X: NDArray[Any], retained: float = 0.95) -> Whitening:
    """ZCA whitening of rows, in the directions that hold this share of their variance.

    The others are removed, since whitening them would amplify noise.

    >>> import numpy as np
    >>> mixed = np.array([[2, 1, 0], [0, 1, 0], [0, 0, 3]])
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) @ mixed
    >>> np.allclose(np.cov(zca(X, 1.0)(X).T, bias=True), np.eye(3))
    True
    """
    retained = validation.real("retained", retained, 0, 1)
    mean = X.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(np.cov(X.T, bias=True))
    variances, directions = np.maximum(variances[::-1], 0.0), directions[:, ::-1]
    held = np.cumsum(variances)
    n_kept = int(np.searchsorted(held, retained * held[-1] * (1 - 1e-12))) + 1
    kept = directions[:, :n_kept]
    scale = 1 / np.sqrt(np.maximum(variances[:n_kept], np.finfo(float).tiny))
    return Whitening(mean, (kept * scale) @ kept.T)


def whitened_patches(
    image: NDArray[Any],
    patch_size: int,
    n_patches: int,
    *,
    clamp: float = 0.02,
    least_structure: float = LEAST_STRUCTURE,
    retained: float = 0.95,
    seed: int = 0,
) -> tuple[NDArray[np.float64], Whitening]:
    """Whitened patches from random places, of those that have some structure.

    Parameters
    ----------
    image : ndarray of shape (rows, columns)
    patch_size, n_patches : int
    clamp : float
        Share of the pixels that are taken to be as bright as the brightest of the others.
    least_structure : float
        Least standard deviation of a patch, as a share of the image's.
    retained : float
        Share of the variance that is kept, see `zca`.
    seed : int

    Returns
    -------
    X : ndarray of shape (n_patches, patch_size**2)
        Data for `BinarySparseCoding` or `SpikeSlabCoding`.
    whitening : Whitening
        What made them of patches.

    Examples
    --------
    >>> import numpy as np
    >>> from evoem.images.natural_patches import whitened_patches
    >>> image = np.random.default_rng(0).normal(size=(60, 60)).cumsum(0).cumsum(1)
    >>> X, whitening = whitened_patches(image, 5, 1000, least_structure=0.0, retained=1.0)
    >>> X.shape, bool(np.allclose(X.std(0), 1))
    ((1000, 25), True)
    """
    rng = np.random.default_rng(seed)
    values = clamp_brightest(image, clamp)
    least = validation.real("least_structure", least_structure, 0) * float(values.std())
    chosen, n_chosen, n_drawn = list[NDArray[np.float64]](), 0, 0
    while n_chosen < n_patches:
        drawn = random_patches(values, patch_size, DRAWN * n_patches, rng)
        structured = drawn[drawn.std(1) >= least]
        chosen.append(structured)
        n_chosen, n_drawn = n_chosen + len(structured), n_drawn + len(drawn)
        if n_chosen * 100 < n_drawn:
            raise ValueError(
                f"least_structure must leave a hundredth of the patches; got {least_structure}, "
                f"which leaves {n_chosen} of {n_drawn}."
            )
    X = np.concatenate(chosen)[:n_patches]
    whitening = zca(X, retained)
    return whitening(X), whitening
