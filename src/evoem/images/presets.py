"""Named settings, and how they are fitted to small images."""

from typing import NamedTuple

from evoem.images import patches


class Settings(NamedTuple):
    """What a restoration needs to know; see `restore`."""

    patch_size: int
    n_latents: int
    n_states: int
    n_parents: int
    n_children: int
    n_generations: int
    max_iter: int
    n_parts: int  # mini-batches per iteration


PRESETS = {
    "fast": Settings(8, 256, 60, 30, 2, 1, 30, 4),
    "balanced": Settings(12, 512, 100, 30, 3, 1, 100, 4),
    # Section 4.2 and appendix E, House at a patch size of 12.
    "paper": Settings(12, 512, 60, 60, 1, 1, 4000, 1),
}
# A dictionary needs this many patches for each latent, and as many patches as they have pixels.
PATCHES_PER_LATENT = 8


def fit_to_image(settings: Settings, shape: tuple[int, int, int], stride: int) -> Settings:
    """The same settings with smaller patches and fewer latents where the image is small."""
    for patch_size in range(settings.patch_size, 0, -1):
        places = patches.grid(shape, patch_size, min(stride, patch_size))
        if places.n_patches >= places.n_pixels // shape[2] or patch_size == 1:
            break
    n_latents = max(min(settings.n_latents, places.n_patches // PATCHES_PER_LATENT), 2)
    n_states = min(settings.n_states, 2**n_latents) if n_latents < 20 else settings.n_states
    n_parents = min(settings.n_parents, n_states)
    n_children = min(settings.n_children, n_latents)
    return settings._replace(
        patch_size=patch_size,
        n_latents=n_latents,
        n_states=n_states,
        n_parents=n_parents,
        n_children=n_children,
    )
