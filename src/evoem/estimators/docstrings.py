"""Parts of docstrings that estimators share, written once."""

import dataclasses
from typing import TypeVar

Estimator = TypeVar("Estimator")

SHARED = {
    "n_latents": """n_latents : int, default=8
        Number of binary latents, H.""",
    "common": """n_states : int, "all" or None, default=None
        States kept per data point, S. More states give better results and take longer. "all" keeps
        all 2**n_latents of them, which makes inference exact. None is 60, or all if there are
        fewer.
    n_parents : int or None, default=None
        Parents selected per generation, N_p. None is 6, or `n_states` if that is smaller.
    n_children : int or None, default=None
        Children of each parent, N_m; ignored with crossover. None is 5, or `n_latents` if that is
        smaller.
    n_generations : int, default=2
        Generations per iteration, N_g.
    parents : {"fit", "random", "best"}, default="fit"
        Select parents by fitness, uniformly, or take the best states.
    mutation : {"uniform", "sparse", "guided"}, default="uniform"
        Flip one uniformly chosen bit; or bits such that children are as sparse as the prior; or one
        bit, often that of a latent which the model finds promising.
    crossover : bool, default=False
        Cross all pairs of parents before mutation.
    max_iter : int, default=200
        Maximum number of iterations.
    tol : float, default=0.0001
        Stop when the bound rises by less than this per iteration, in nats per data point, on
        average over five iterations. 0 never stops early.
    batch_size : int or None, default={batch_size}
        Largest number of rows per M-step (incremental EM); the data are split evenly. None is the
        paper's full batch.
    warm_start : bool, default=False
        Continue from the last fit: with the same data as if it had not ended, with other data of
        the same width from the learnt parameters.
    keep_states : bool, default=True
        Keep the states of each row, which `transform` and other methods then use for these rows.
        They make up most of a pickle. Without them states are inferred again, which takes longer
        and finds slightly worse ones. A warm start always keeps them.
    n_jobs : int or None, default=None
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None, default=None
        Seed of all random numbers.
    callback : callable or None, default=None
        Called with an `evoem.em.StepInfo` after each iteration, and with the `evoem.em.EMState` if
        it takes two arguments; returning True ends the run.
    verbose : int, default=0
        Iterations between lines on standard error; 0 or False writes none.""",
    "updates": """updates : {"monotone", "printed"}, default="monotone"
        M-steps that never lower the bound, or those printed in the paper.""",
    "linear_updates": """updates : {"monotone", "printed", "authors"}, default="monotone"
        M-steps that never lower the bound, those printed in the paper, or those of its authors'
        programs.""",
    "attributes": """free_energy_ : float
        The bound per data point after the last E-step.
    free_energies_ : ndarray of shape (n_iterations,)
        The same after each iteration's E-step.
    history_ : dict of ndarrays of shape (n_iterations,)
        "seconds", "states_evaluated" and "states_replaced" of each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the bound stopped rising by more than `tol`.
    n_features_in_ : int
        Number of features, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, only if they all have names that are strings.
    state_ : evoem.em.EMState
        All that a later `fit` with `warm_start` needs; without `keep_states` it has no rows.""",
}


def documented(estimator: type[Estimator]) -> type[Estimator]:
    """Fill in names in braces: the shared parts of an estimator's docstring, and its defaults."""
    text = estimator.__doc__ or ""
    for name, shared in SHARED.items():
        text = text.replace(f"{{{name}}}", shared)
    for parameter in dataclasses.fields(estimator):  # type: ignore[arg-type]
        text = text.replace(f"{{{parameter.name}}}", repr(parameter.default))
    estimator.__doc__ = text
    return estimator
