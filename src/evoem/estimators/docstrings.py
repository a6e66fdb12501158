"""What the docstrings of several estimators say alike, written once."""

import dataclasses
from typing import TypeVar

Estimator = TypeVar("Estimator")

SHARED = {
    "n_latents": """n_latents : int, default=8
        Number of binary latents, H.""",
    "common": """n_states : int, "all" or None, default=None
        Latent states kept per data point, S. More is better and slower. "all" keeps all
        2**n_latents of them, which makes inference exact. None takes 60, or all if fewer.
    n_parents : int or None, default=None
        Parents chosen per generation, N_p. None takes 6, or as many as there are states.
    n_children : int or None, default=None
        Children of each parent, N_m; ignored with crossover. None takes 5, or as many as there are
        latents.
    n_generations : int, default=2
        Generations bred per iteration, N_g.
    parents : {"fit", "random", "best"}, default="fit"
        Parents drawn by fitness, or uniformly; or the best states.
    mutation : {"uniform", "sparse", "guided"}, default="uniform"
        Flip one uniformly chosen bit; or bits so that children are as sparse as the prior; or one
        bit, often that of a latent which the model finds promising.
    crossover : bool, default=False
        Cross all pairs of parents before mutation.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=0.0001
        Stop when the bound rises by less than this per iteration, in nats per data point, on
        average over five iterations. 0 never stops early.
    batch_size : int or None, default={batch_size}
        Rows per M-step at most (incremental EM): the data are shared out evenly. None is the
        paper's full batch.
    warm_start : bool, default=False
        Continue from the last fit: with the same data it goes on as if it had never stopped, with
        other data of the same width it starts from the learnt parameters.
    keep_states : bool, default=True
        Keep the states that were found for each row of the data, which `transform` and others use
        for these rows. They are nearly all of a pickle. Without them states are inferred anew,
        which takes longer and finds less good ones. A warm start always keeps them.
    n_jobs : int or None, default=None
        Threads; -1 for all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None, default=None
        Everything random follows from it.
    callback : callable or None, default=None
        Called with an `evoem.em.StepInfo` after each iteration, and with the `evoem.em.EMState` if
        it takes two arguments; returning True ends the run.
    verbose : int, default=0
        Iterations between lines on standard error; 0 or False writes none.""",
    "updates": """updates : {"monotone", "printed"}, default="monotone"
        M-steps that never lower the bound, or those printed in the paper where they differ.""",
    "linear_updates": """updates : {"monotone", "printed", "authors"}, default="monotone"
        M-steps that never lower the bound, those printed in the paper where they differ, or those
        of its authors' programs.""",
    "attributes": """free_energy_ : float
        The bound per data point after the last E-step.
    free_energies_ : ndarray of shape (n_iterations,)
        The same after each iteration's E-step.
    history_ : dict of ndarrays of shape (n_iterations,)
        "seconds", "states_evaluated" and "states_replaced" of each iteration.
    n_iter_ : int
        Iterations run.
    converged_ : bool
        Whether `tol` was reached.
    n_features_in_ : int
        Features of the data, D.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, only if the data had names, all of them strings.
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
