"""Does the code at hand compute the same bits as the code of a commit?

    python benchmarks/same_bits.py HEAD
    python benchmarks/same_bits.py main~3 --only spike restore

Both versions run the same small problems on this machine, one after the other, and every number is
compared bit by bit: parameters, kept states, log-joints and bounds of two iterations of every
model, with and without missing values and mini-batches, and two small restorations. Bits differ
between processors, so nothing is stored. They also differ, in the last place, with the order in
which kernels were compiled, so both versions compile in that of the problems, into caches of their
own.

Problems go through the estimators and `restore`, whose names stay while those below them change.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
N_ROWS = 240
N_PARTS = 4  # of equal size, so that it does not matter how rows are shared out

Result = dict[str, Any]


def rows(missing: float, binary: bool) -> np.ndarray:
    """Sums of a few patterns and noise, NaN where missing."""
    rng = np.random.default_rng(3)
    active = rng.random((N_ROWS, 6)) < 0.3
    X = (active * rng.normal(2, 1, active.shape)) @ rng.normal(size=(6, 16))
    X += 0.5 * rng.normal(size=X.shape)
    if binary:
        X = (X > 0.5).astype(float)
    return np.where(rng.random(X.shape) < missing, np.nan, X)


def black_box() -> Any:
    """Binary sparse coding of unit noise, as a user would write it."""
    from evoem import BlackBox

    def log_joint(params: Any, X: Any, states: Any, observed: Any) -> Any:
        error = (X[:, None] - states @ params["W"]) ** 2 * observed[:, None]
        return -0.5 * error.sum(-1)

    def statistics(params: Any, X: Any, observed: Any, states: Any, weights: Any) -> Any:
        s = np.einsum("ns,nsh->nh", weights, states)
        return {"sx": s.T @ X, "ss": np.einsum("ns,nsh,nsg->hg", weights, states, states)}

    def update(params: Any, sums: Any) -> Any:
        return {"W": np.linalg.solve(sums["ss"] + np.eye(len(sums["ss"])), sums["sx"])}

    W = np.random.default_rng(0).normal(size=(8, 16))
    return BlackBox(log_joint, {"W": W}, 8, statistics=statistics, update=update)


def estimators() -> dict[str, Callable[[], Any]]:
    """Every model, by name."""
    from evoem import BinarySparseCoding, NoisyOr, SpikeSlabCoding, SubspaceCoding

    return {
        "noisy-or": lambda: NoisyOr(8),
        "noisy-or-printed": lambda: NoisyOr(8, updates="printed"),
        "binary": lambda: BinarySparseCoding(8),
        "binary-printed": lambda: BinarySparseCoding(8, updates="printed"),
        "spike-slab": lambda: SpikeSlabCoding(8),
        "spike-slab-printed": lambda: SpikeSlabCoding(8, updates="printed"),
        "spike-slab-full": lambda: SpikeSlabCoding(8, slab="full"),
        "spike-slab-full-printed": lambda: SpikeSlabCoding(8, slab="full", updates="printed"),
        "spike-slab-fixed": lambda: SpikeSlabCoding(8, slab="fixed", learn_slab_means=False),
        "subspace": lambda: SubspaceCoding(8, rank=3),
        "black-box": black_box,
    }


BREEDING: dict[str, dict[str, Any]] = {
    "default": {},
    "guided": {"parents": "best", "mutation": "guided"},
    "crossed": {"parents": "random", "mutation": "sparse", "crossover": True},
}


def fitted(make: Callable[[], Any], X: np.ndarray, **options: Any) -> Result:
    """All numbers of two iterations."""
    found = make().set_params(max_iter=2, tol=0, random_state=5, n_states=12, **options).fit(X)
    state = found.state_
    learnt = dict(flat("params", state.params))
    return learnt | {
        "states": state.states,
        "log_joints": state.log_joints,
        "bounds": found.free_energies_,
        "codes": found.transform(X[:20]),
        "estimate": found.reconstruct(X[:20], return_std=True),
    }


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Arrays of nested tuples and dicts by name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from flat(f"{name}.{key}", part)
    elif hasattr(value, "_asdict"):
        yield from flat(name, value._asdict())
    elif value is not None:
        yield name, value


def restored(seed: int, missing: float, **options: Any) -> Result:
    """All numbers of a small restoration."""
    import evoem

    y, x = np.mgrid[0:60, 0:52]
    rng = np.random.default_rng(seed)
    image = 100 + 60 * np.sin(x / 3.0) * (y > 24) + 40 * (x + y > 60)
    image = image + rng.normal(0, 20, image.shape)
    mask = rng.random(image.shape) < missing if missing else None
    found = evoem.restore(image, mask=mask, preset="fast", seed=2, n_jobs=2, **options)
    return {
        "image": found.image,
        "std": found.std,
        "noise": found.noise_level,
        "bounds": found.free_energies,
    }


def problems() -> dict[str, Callable[[], Result]]:
    """Everything that is compared, by name."""
    found: dict[str, Callable[[], Result]] = {}
    for name, make in estimators().items():
        for missing in (0.0, 0.3):
            X = rows(missing, name.startswith("noisy-or"))
            for part, size in (("whole", None), ("parts", N_ROWS // N_PARTS)):
                for way, breeding in BREEDING.items():
                    label = f"{name}, {missing:.0%} missing, {part}, {way}"
                    options = {"batch_size": size, **breeding}
                    found[label] = lambda make=make, X=X, options=options: fitted(
                        make, X, **options
                    )
    found["restore: denoise"] = lambda: restored(0, 0.0)
    found["restore: inpaint"] = lambda: restored(1, 0.5, keep_observed=True)
    found["restore: denoise, es3c"] = lambda: restored(0, 0.0, model="es3c", n_latents=40)
    return found


def compute(target: Path, only: list[str]) -> None:
    """Write all numbers of the version that Python finds."""
    arrays = {}
    for label, solve in problems().items():
        if not only or any(word in label for word in only):
            for name, value in solve().items():
                arrays[f"{label}: {name}"] = np.asarray(value)
    np.savez(target, **arrays)


def numbers_of(source: Path, target: Path, only: list[str]) -> dict[str, np.ndarray]:
    """All numbers of the version in a folder."""
    command = [sys.executable, str(HERE), "--compute", str(target), "--only", *only]
    paths = os.pathsep.join([str(source / "src"), os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(target.with_suffix(".cache"))}
    subprocess.run(command, env=os.environ | own, check=True)
    with np.load(target) as file:
        return {name: file[name] for name in file.files}


def differences(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> Iterator[str]:
    """A line for each array that is not the same to the bit."""
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            yield f"{name}: only {'before' if name in before else 'after'}"
            continue
        one, other = before[name], after[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            yield f"{name}: {one.dtype} {one.shape} became {other.dtype} {other.shape}"
        elif one.tobytes() != other.tobytes():
            far = np.abs(one.astype(float) - other.astype(float)).max()
            yield f"{name}: differs by up to {far:.3g}"


def main() -> None:
    """Compare, and leave with 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of problems")
    parser.add_argument("--compute", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compute is not None:
        compute(given.compute, given.only)
        return
    root = HERE.parents[1]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        old.mkdir()
        archive = subprocess.run(
            ["git", "archive", given.commit, "src"], cwd=root, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", str(old)], input=archive.stdout, check=True)
        before = numbers_of(old, Path(folder) / "before.npz", given.only)
        after = numbers_of(root, Path(folder) / "after.npz", given.only)
    wrong = list(differences(before, after))
    for line in wrong:
        print(line)
    print(f"{len(after) - len(wrong)} of {len(after)} arrays are the same to the bit.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
