"""How many iterations it takes to learn from incomplete rows, feature by feature or by filling in.

    python benchmarks/missing_values.py

Data are drawn from a dictionary; a share of the values is missing. Counted are iterations until the
bound has risen by a share of its whole rise, which is that of the way that ends lower.
"""

import argparse
import time

import numpy as np

from evoem import em
from evoem.models import BinarySparseCodingModel, SpikeSlabModel

SHARES = (0.5, 0.9, 0.98)


def problem(kind, n_latents, n_features, n_rows, missing):
    """Rows with three active latents each, on average, and where they are observed."""
    rng = np.random.default_rng(1)
    W = 3 * rng.normal(size=(n_latents, n_features))
    active = rng.random((n_rows, n_latents)) < min(0.3, 3 / n_latents)
    amounts = 1.0 if kind == "binary" else rng.normal(1, 1, active.shape)
    X = (active * amounts) @ W + 0.5 * rng.normal(size=(n_rows, n_features))
    observed = rng.random(X.shape) >= missing
    return em.Data(np.where(observed, X, 0.0), observed)


def model(kind, by_feature):
    """Of the paper."""
    options = {"init": "data", "by_feature": by_feature}
    if kind == "binary":
        return BinarySparseCodingModel(**options)
    return SpikeSlabModel(slab=kind, learn_slab_means=kind != "fixed", **options)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latents", type=int, default=10)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--missing", type=float, nargs="+", default=(0.1, 0.25, 0.5, 0.8))
    given = parser.parse_args()
    print(f"iterations to {SHARES} of the rise, filled in -> by feature; seconds of an iteration")
    for missing in given.missing:
        for kind in ("binary", "diagonal", "full", "fixed"):
            data = problem(kind, given.latents, given.features, given.rows, missing)
            bounds, seconds = [], []
            for by_feature in (False, True):
                own = model(kind, by_feature)
                state = em.init(own, data, n_states=30, n_latents=given.latents, seed=3)
                began = time.process_time()
                _, infos = em.run(
                    own, data, state, em.Evolution(6, 5, 1), max_iter=given.iterations
                )
                seconds.append((time.process_time() - began) / given.iterations)
                bounds.append(np.array([info.free_energy for info in infos]))
            first, last = bounds[0][0], min(found[-1] for found in bounds)
            steps = [
                [int((found < first + share * (last - first)).sum()) + 1 for found in bounds]
                for share in SHARES
            ]
            listed = ", ".join(f"{plain} -> {own}" for plain, own in steps)
            print(f"{missing:.2f} {kind:8}: {listed}; {seconds[0]:.3f} -> {seconds[1]:.3f}")


if __name__ == "__main__":
    main()
