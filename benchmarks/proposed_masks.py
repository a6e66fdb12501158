"""How much of damage `--propose-mask` finds, and how much of what it marks is damage.

    python benchmarks/proposed_masks.py

Damage is drawn on photographs of scikit-image: white scratches of one to three pixels, white text
of 20 pixels, black dust of up to seven, black and white dead pixels. Recall is the share of damaged
pixels that are marked, precision the share of marked ones at most a pixel from damage. The last
line is what is marked of the photographs as they are.
"""

import argparse
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data

from evoem.images import masks

PICTURES = ("camera", "coins", "moon", "chelsea", "coffee", "astronaut", "brick")
RNG = np.random.default_rng(1)

Draw = Callable[[ImageDraw.ImageDraw, int, int], None]


def scratches(draw: ImageDraw.ImageDraw, height: int, width: int) -> None:
    """Twelve lines that bend."""
    for _ in range(12):
        place = np.array([RNG.integers(width), RNG.integers(height)], float)
        angle, length = RNG.uniform(0, 2 * np.pi), RNG.uniform(60, 300)
        points = []
        for _ in range(20):
            points.append(tuple(place))
            place = place + length / 20 * np.array([np.cos(angle), np.sin(angle)])
            angle += RNG.normal(0, 0.05)
        draw.line(points, fill=255, width=int(RNG.integers(1, 4)))


def text(draw: ImageDraw.ImageDraw, height: int, width: int) -> None:
    """Lines of text."""
    font = ImageFont.load_default(size=20)
    for top in range(20, height - 20, 60):
        draw.text((15, top), "The quick brown fox jumps over 2026", fill=255, font=font)


def dust(draw: ImageDraw.ImageDraw, height: int, width: int) -> None:
    """Sixty discs."""
    for _ in range(60):
        column, row, radius = RNG.integers(width), RNG.integers(height), RNG.uniform(1, 3)
        draw.ellipse((column - radius, row - radius, column + radius, row + radius), fill=255)


def dead(draw: ImageDraw.ImageDraw, height: int, width: int) -> None:
    """Three pixels of a thousand."""
    for place in RNG.choice(height * width, height * width * 3 // 1000, replace=False):
        draw.point((int(place % width), int(place // width)), fill=255)


def nothing(draw: ImageDraw.ImageDraw, height: int, width: int) -> None:
    """The photograph as it is."""


def values_of(kind: Draw, number: int) -> np.ndarray:
    """What damaged pixels are."""
    if kind is dead:
        return np.where(RNG.random(number) < 0.5, 0.0, 255.0)
    return np.full(number, 0.0 if kind is dust else 255.0)


def measured(photograph: np.ndarray, kind: Draw) -> str:
    """Precision and recall, or the share that is marked."""
    values = np.atleast_3d(photograph).astype(float)
    height, width = values.shape[:2]
    drawn = Image.new("L", (width, height))
    kind(ImageDraw.Draw(drawn), height, width)
    damaged = np.array(drawn) > 127
    values[damaged] = values_of(kind, np.count_nonzero(damaged))[:, None]
    found = masks.proposed(values)
    if not damaged.any():
        return f"{found.mean():.1%}"
    precision = found[masks.grown(damaged, 1)].sum() / max(found.sum(), 1)
    return f"{precision:.2f} {found[damaged].mean():.2f}"


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    photographs = [getattr(data, name)() for name in PICTURES]
    print(f"{'precision recall':20}" + "".join(f"{name:>12}" for name in PICTURES))
    for kind in (scratches, text, dust, dead, nothing):
        row = [measured(photograph, kind) for photograph in photographs]
        print(f"{kind.__name__:20}" + "".join(f"{entry:>12}" for entry in row), flush=True)


if __name__ == "__main__":
    main()
