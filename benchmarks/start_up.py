"""How long the first minute takes: help, import, a small picture, with and without compiled code.

    python benchmarks/start_up.py
    python benchmarks/start_up.py --warm --time-limit 60 --megapixels 3

The picture has 64 × 64 pixels, so that nearly all is overhead: what a command takes beyond the
restoration "alone", within a process in which everything was loaded before. Cold is with an empty
cache of compiled code; `inpaint` comes after `denoise`, whose kernels it shares. Processor time is
that of all processes.

Last comes a photograph-like JPEG of 12 megapixels with a limit of 120 seconds.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 64
REPEATS = 3
ALONE = """
import sys, time
import numpy as np
from PIL import Image
import evoem
image, mask = (np.array(Image.open(path)) for path in sys.argv[1:])
for _ in range(2):
    started = time.perf_counter()
    evoem.denoise(image)
    between = time.perf_counter()
    evoem.inpaint(image, mask)
    ended = time.perf_counter()
print(between - started, ended - between)
"""


def pictures(folder: Path) -> tuple[Path, Path]:
    """A noisy picture and a mask."""
    rng = np.random.default_rng(0)
    clean = 100.0 + 80 * (np.add.outer(np.arange(SIDE) // 8, np.arange(SIDE) // 8) % 2)
    noisy = np.clip(clean + rng.normal(0, 20, clean.shape), 0, 255).astype(np.uint8)
    mask = 255 * (rng.random(clean.shape) < 0.1).astype(np.uint8)
    paths = folder / "noisy.png", folder / "mask.png"
    for path, pixels in zip(paths, (noisy, mask), strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def large_jpeg(folder: Path, megapixels: float) -> Path:
    """Shapes of many sizes in colour, with noise, three high by four wide."""
    height = round((megapixels * 1e6 * 3 / 4) ** 0.5)
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:height, : height * 4 // 3]
    picture = np.zeros((*rows.shape, 3), np.float32)
    for period in (1000, 300, 90, 27):
        angle, phase, colour = rng.uniform(0, 3), rng.uniform(0, 6), rng.uniform(10, 40, 3)
        wave = np.sin((rows * np.cos(angle) + columns * np.sin(angle)) * 6.28 / period + phase)
        picture += np.sign(wave)[..., None] * colour
    picture += 128 + rng.normal(0, 15, picture.shape)
    path = folder / "large.jpg"
    Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(path, quality=92)
    return path


def run(*command: str, **environment: str) -> tuple[float, float, str]:
    """Seconds by the clock and of processors, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, done.stdout


def best(*command: str, **environment: str) -> tuple[float, float]:
    """The least of some runs."""
    found = [run(*command, **environment)[:2] for _ in range(REPEATS)]
    return min(one[0] for one in found), min(one[1] for one in found)


def show(what: str, seconds: float, used: float, alone: float | None = None) -> None:
    """A line of the table."""
    overhead = "" if alone is None else f"{seconds - alone:10.1f}"
    print(f"{what:24}{seconds:10.2f}{used:12.2f}{overhead}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", action="store_true", help="leave out what compiles")
    parser.add_argument("--time-limit", type=float, default=120.0)
    parser.add_argument("--megapixels", type=float, default=12.0)
    arguments = parser.parse_args()
    cold = not arguments.warm
    print(f"{'seconds':24}{'clock':>10}{'processor':>12}{'overhead':>10}")
    show("evoem --help", *best("-m", "evoem", "--help"))
    show("import evoem, denoise", *best("-c", "import evoem; evoem.denoise"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        picture, mask = map(str, pictures(folder))
        commands = {
            name: ["-m", "evoem", name, picture, *given, "-o", str(folder / f"{name}.png")]
            for name, given in {"denoise": [], "inpaint": ["--mask", mask]}.items()
        }
        cache = {"NUMBA_CACHE_DIR": str(folder / "cache")} if cold else {}
        first = {name: run(*command, "--force", **cache)[:2] for name, command in commands.items()}
        alone = dict(
            zip(
                commands,
                map(float, run("-c", ALONE, picture, mask, **cache)[2].split()),
                strict=True,
            )
        )
        for name, command in commands.items():
            if cold:
                show(f"{name}, cold", *first[name], alone[name])
            show(f"{name}, warm", *best(*command, "--force", **cache), alone[name])
            print(f"{name + ', alone':24}{alone[name]:10.2f}")
        large = str(large_jpeg(folder, arguments.megapixels))
        limited = ["-m", "evoem", "denoise", large, "-o", str(folder / "restored.jpg")]
        limited += ["--time-limit", str(arguments.time_limit)]
        what = f"{arguments.megapixels:g} MP in {arguments.time_limit:g} s"
        show(what, *run(*limited, **cache)[:2])


if __name__ == "__main__":
    main()
