"""Inner products over what was observed of a row, against matrix products."""

import numpy as np

from evoem.models import observed_gram
from evoem.runtime.compile import kernel


@kernel
def gathered(known, V, observed, rows, active, sizes, out):
    """Gram matrices of states, each of a row that comes again or for the first time."""
    last = -1
    for m in range(len(rows)):
        if rows[m] != last:
            last = rows[m]
            observed_gram.start_row(known, observed, last)
        observed_gram.gather_observed(known, V, active[m], sizes[m], out[m])


def test_inner_products_are_those_over_what_was_observed():
    rng = np.random.default_rng(0)
    V, observed = rng.normal(size=(6, 9)), rng.random((4, 9)) < 0.5
    rows = np.repeat(np.arange(4), 10)
    sizes = rng.integers(0, 7, len(rows))
    active = np.array([rng.permutation(6) for _ in rows])
    out = np.zeros((len(rows), 36))
    gathered(observed_gram.empty_gram(V, observed), V, observed, rows, active, sizes, out)
    for row, latents, k, found in zip(rows, active, sizes, out, strict=True):
        own = V[latents[:k]]
        expected = (own * observed[row]) @ own.T
        np.testing.assert_allclose(
            np.tril(found[: k * k].reshape(k, k)), np.tril(expected), atol=1e-12
        )


def test_complete_rows_need_no_inner_products_of_their_own():
    assert observed_gram.empty_gram(np.eye(3), None) is None
