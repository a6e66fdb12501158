"""Options and presets, made into plans for an image."""

import numpy as np
from sample_images import (
    GREY,
    TINY,
    assert_same,
)  # fmt: skip

from evoem import restore
from evoem.images import budget, canonical_arrays, plan, settings
from evoem.images.plan import plans_for
from evoem.images.settings import checked


def test_settings_say_what_was_used():
    result = restore(GREY, merge="centre", seed=8, tol=1e-9, stride=2, **TINY | {"model": "ebsc"})
    own = {name: TINY[name] for name in TINY if name not in ("n_jobs", "model")}
    chosen = {"merge": "centre", "seed": 8, "tol": 1e-9, "stride": 2, "model": "ebsc"}
    others = {"preset": "balanced", "n_generations": 1, "time_limit": None}
    assert result.settings.items() >= (own | chosen | others).items()
    again = restore(GREY, n_jobs=1, **result.settings)
    assert_same(again, result)


def test_the_paper_takes_every_patch_and_no_noise_but_white(monkeypatch):
    monkeypatch.setattr(settings, "MANY_PATCHES", 100)
    options = checked("restore", TINY | {"preset": "paper"})
    canonical = canonical_arrays.read(GREY, None, None, False)
    (found,) = plan.plans_for(canonical, options, False)
    assert (found.stride, found.settings["n_learnt"] > 10**9) == (1, True)
    assert plan.noise_of(options) == "gaussian"
    assert plan.noise_of(options | {"noise": "correlated"}) == "correlated"
    assert plan.noise_of(options | {"noise_variance": GREY}) == "auto"
    assert plan.noise_of(options | {"preset": "best"}) == "auto"


def test_little_memory_means_fewer_subspaces():
    """As many as go with the patches there is memory to learn from."""
    image = np.random.default_rng(0).normal(size=(400, 400))
    canonical = canonical_arrays.read(image, None, None, False)

    def plan(memory, **given):
        return plans_for(canonical, checked("restore", {"memory": memory, **given}), False)[0]

    plans = [plan(memory) for memory in (1 << 34, 200 << 20, 20 << 20)]
    much, little, least = (plan.settings["n_latents"] for plan in plans)
    assert much == round(256 * 389**2 / 64_000)
    assert 256 > least > 20
    assert much > little == 256
    for one in plans:
        room = budget.enough_in_memory(canonical, one.grid, one.settings, one.memory)
        assert one.settings["n_latents"] <= max(room / 64, 256 * room / 64_000)
    assert plan(200 << 20, n_latents=300).settings["n_latents"] == 300
