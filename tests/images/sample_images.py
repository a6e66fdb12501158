"""Small pictures, what is done to them, and options that are enough to restore them."""

import functools

import numpy as np
from scipy import ndimage

from evoem import restore
from evoem.images import budget

MODELS = ("subspaces", "es3c", "ebsc")


SIGMA = 25.0


SMALL = {
    "model": "es3c",
    "patch_size": 5,
    "n_latents": 16,
    "n_states": 16,
    "n_parents": 8,
    "n_children": 2,
    "n_parts": 1,
    "parents": "fit",
    "start": "mean",
    "max_iter": 20,
    "n_jobs": 1,
}


TINY = SMALL | {"patch_size": 3, "n_latents": 6, "n_states": 8, "n_parents": 4, "max_iter": 3}


def picture(size=40, shift=0.0):
    """A soft-edged ellipse and slanted stripes on a slope, between 40 and 250."""
    row, column = np.mgrid[:size, :size] / size
    ellipse = soft(0.3 - np.hypot(column - 0.4 - shift, 1.4 * (row - 0.5)))
    stripes = soft(0.12 * np.sin(6 * np.pi * (row + column + shift))) * (column > 0.6)
    return 40 + 110 * ellipse + 80 * stripes + 30 * row


def soft(height):
    return 1 / (1 + np.exp(-40 * height))


def colour(size=24, n_channels=3):
    """Channels with the same edges, each with its own brightness."""
    grey = picture(size)
    return np.stack([grey * (1 - 0.15 * k) + 12 * k for k in range(n_channels)], axis=-1)


def noisy(clean, seed=0, sigma=SIGMA):
    return clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)


def holes_at(shape, share=0.5, seed=0):
    return np.random.default_rng(seed).random(shape) < share


def nearest(image, mask):
    """The image with each missing pixel as its nearest observed one."""
    places = ndimage.distance_transform_edt(mask, return_distances=False, return_indices=True)
    return image[tuple(places)]


def as_dtype(image, dtype):
    """The picture, with dark and bright ends clipped, in all of what a type can hold."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return image > 110
    if dtype.kind == "f":
        return image.astype(dtype)
    top = {"uint8": 255, "uint16": 65535, "int32": 2**31 - 1}[dtype.name]
    return np.clip(np.rint((image - 60) / 120 * top), 0, top).astype(dtype)


GREY = noisy(picture(24))


MASK = holes_at(GREY.shape, 0.3)


@functools.cache
def noisy_run(model, seed):
    return restore(noisy(picture(), seed), seed=seed, **SMALL | {"model": model})


@functools.cache
def tiny_run(**options):
    return restore(GREY, **TINY | options)


def assert_same(one, other):
    np.testing.assert_array_equal(one.image, other.image)
    np.testing.assert_array_equal(one.std, other.std)
    np.testing.assert_array_equal(one.free_energies, other.free_energies)
    assert one.noise_level == other.noise_level


STACK = np.stack([GREY, GREY.T[::-1], noisy(picture(24, 0.1), 5)])


COLOURS = np.stack([noisy(colour()), noisy(colour()[::-1], 1)])


def memory_for(n_patches, settings, masked=False, n_values=24**2):
    """Just enough for so many patches, beside what the image takes."""
    own = n_patches * budget.bytes_per_patch(settings, settings["patch_size"] ** 2, masked)
    return own + min(own, budget.BYTES_PER_VALUE * n_values)
