"""The bars test (subsec:verification): data with known parameters, matched to learnt ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from evoem import em, inference
from evoem.em_state import EMState
from evoem.evolution import Evolution
from evoem.models import BinarySparseCodingModel, Model, NoisyOrModel, SpikeSlabModel
from evoem.models.binary_sparse_coding import BinarySparseCodingParams
from evoem.models.noisy_or import NoisyOrParams
from evoem.models.spike_slab.update import SpikeSlabParams
from evoem.reproduction.recipes import Settings
from evoem.reproduction.search import evolution_of
from evoem.runtime.threads import crew

SIZE = 5
N_BARS = 2 * SIZE
FOUND = 0.9  # a bar is found if a component of its own correlates with it by more than this
AMPLITUDE = 5.0
ON, OFF = 0.8, 0.1  # of noisy-OR: within a bar, and elsewhere
ACTIVATION_PROBS = np.full(N_BARS, 2 / N_BARS)  # two bars in a picture, on average

Random = np.random.Generator


def patterns() -> NDArray[np.float64]:
    """Every row and every column of a picture: (10, 25), ones on zeros."""
    pictures = np.zeros((N_BARS, SIZE, SIZE))
    for i in range(SIZE):
        pictures[i, i, :] = 1.0
        pictures[SIZE + i, :, i] = 1.0
    return pictures.reshape(N_BARS, SIZE**2)


def signed(rng: Random) -> NDArray[np.float64]:
    """Bars of amplitude 5 or -5."""
    signs: NDArray[np.float64] = rng.choice([AMPLITUDE, -AMPLITUDE], size=(N_BARS, 1))
    return patterns() * signs


def true_noisy_or(rng: Random) -> NoisyOrParams:
    """Bars of 0.8 on a background of 0.1."""
    return NoisyOrParams(OFF + (ON - OFF) * patterns(), ACTIVATION_PROBS)


def true_binary(rng: Random) -> BinarySparseCodingParams:
    """Signed bars, and noise of variance one."""
    return BinarySparseCodingParams(signed(rng), ACTIVATION_PROBS, np.array(1.0))


def true_spike_slab(rng: Random) -> SpikeSlabParams:
    """Signed bars with standard normal amplitudes, and noise of variance one."""
    return SpikeSlabParams(
        signed(rng), ACTIVATION_PROBS, np.array(1.0), np.zeros(N_BARS), np.ones(N_BARS)
    )


class Kind(NamedTuple):
    """A model of the bars test."""

    label: str
    make: Callable[..., Model]  # of its options
    truth: Callable[[Random], Any]


KINDS = {
    "noisy-or": Kind("noisy-OR", NoisyOrModel, true_noisy_or),
    "bsc": Kind("BSC", BinarySparseCodingModel, true_binary),
    "sssc": Kind("SSSC", SpikeSlabModel, true_spike_slab),
}


class Data(NamedTuple):
    """Pictures of bars, and what they were made of."""

    truth: Any
    X: NDArray[np.float64]


def generate(kind: Kind, n_rows: int, seed: int) -> Data:
    """So many pictures of the true parameters that belong to a seed."""
    rng = np.random.default_rng(seed)
    truth = kind.truth(rng)
    X, _ = kind.make().sample(truth, n_rows, rng)
    return Data(truth, X)


def true_bound(kind: Kind, data: Data, n_jobs: int = 1) -> float:
    """Log-likelihood per picture of the true parameters, over all 2**10 states."""
    every = {"n_states": 2**N_BARS, "n_jobs": n_jobs}
    found = inference.infer(kind.make(), em.Data(data.X), data.truth, Evolution(), **every)
    return float(found.bounds.mean())


class Snapshot(NamedTuple):
    """Parameters after an iteration; 0 is before the first."""

    iteration: int
    params: Any


class Run(NamedTuple):
    """What was learnt, and what happened on the way."""

    params: Any
    bounds: NDArray[np.float64]
    snapshots: list[Snapshot]


def learn(settings: Settings, X: NDArray[np.float64], seed: int, n_jobs: int = 1) -> Run:
    """Learn bars from the paper's initial values, by a recipe's settings."""
    model = KINDS[settings["model"]].make(**settings["options"])
    searched = settings["search"]
    data, n_latents = em.Data(X), searched["n_latents"]
    n_states = searched["n_states"]
    state = em.init(model, data, n_latents=n_latents, n_states=n_states, seed=seed, n_jobs=n_jobs)
    snapshots = [Snapshot(0, state.params)]

    def note(info: em.StepInfo, state: EMState) -> None:
        snapshots.append(Snapshot(info.iteration, state.params))

    with crew(n_jobs):
        state, infos = em.run(
            model,
            data,
            state,
            evolution_of(searched),
            max_iter=searched["max_iter"],
            callback=note,
            n_jobs=n_jobs,
        )
    return Run(state.params, np.array([info.free_energy for info in infos]), snapshots)


class Match(NamedTuple):
    """One component for each bar, so that correlations are best in sum."""

    partners: NDArray[np.int64]  # the component of each bar
    correlations: NDArray[np.float64]

    @property
    def n_found(self) -> int:
        """Bars that have a component of their own."""
        return int((np.abs(self.correlations) > FOUND).sum())


def match(true: NDArray[np.float64], learnt: NDArray[np.float64]) -> Match:
    """Components assigned to bars.

    Correlations count by their size: the sign of a component with a symmetric slab is arbitrary.
    """
    with np.errstate(invalid="ignore", divide="ignore"):  # of components that are constant
        correlations = np.corrcoef(true, learnt)[: len(true), len(true) :]
    correlations = np.nan_to_num(correlations)
    _, partners = linear_sum_assignment(-np.abs(correlations))
    return Match(partners, correlations[np.arange(len(true)), partners])


def unit_components(params: Any) -> NDArray[np.float64]:
    """Components in units of their amplitudes' root mean square, which is what data show of them:
    the scale of W and of z is not identified."""
    components: NDArray[np.float64] = params.components
    if not hasattr(params, "slab_means"):
        return components
    psi = params.slab_covariance
    second = (np.diag(psi) if psi.ndim == 2 else psi) + params.slab_means**2
    scale: NDArray[np.float64] = np.sqrt(second)
    return components * scale[:, None]


def amplitudes(params: Any, partners: NDArray[np.int64]) -> tuple[float, float]:
    """Mean size of components within the bars they are matched with, and elsewhere."""
    sizes = np.abs(unit_components(params))[partners]
    inside = patterns() > 0
    return float(sizes[inside].mean()), float(sizes[~inside].mean())
