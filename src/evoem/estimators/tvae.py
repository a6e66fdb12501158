"""The scikit-learn face of a variational autoencoder without an encoder: `TVAE`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import em, validation
from evoem.black_box.array_libraries import import_extra
from evoem.black_box.model import BlackBoxParams
from evoem.estimators.base import ATTRIBUTES, COMMON
from evoem.estimators.black_box import BlackBox

OBSERVABLES = ("gaussian", "bernoulli")


def _decoders() -> Any:
    """`evoem.black_box.decoder`, which needs PyTorch."""
    import_extra("torch", "PyTorch", "torch")

    from evoem.black_box import decoder

    return decoder


class TVAE(BlackBox):
    """A variational autoencoder with binary latents: a neural decoder, and no encoder.

    Latents are independent, s_h ~ Bernoulli(π_h), and the data's mean is a neural network's output
    for them. The network's weights follow the gradient of the truncated bound, and the states it is
    a bound over are evolved, as in Drefs, Guiraud, Panagiotou and Lücke, *Direct Evolutionary
    Optimization of Variational Autoencoders With Binary Latents*, 2022: nothing is amortised or
    reparametrised. Needs PyTorch, the extra `torch`.

    Parameters
    ----------
    {common}
    hidden : sequence of int, default=(64,)
        Units of the decoder's hidden layers, from the latents to the data; they are leaky rectified
        linear ones. Without any, (), the decoder is linear.
    observable : {{"gaussian", "bernoulli"}}, default="gaussian"
        Real data with noise of one variance, which is learnt, or binary data of 0, 1 and NaN.
    learning_rate : float, default=0.01
        Of Adam, which takes a step after each batch. If `batch_size` is None there is one step per
        iteration, which is taken only if it does not lower the bound.

    Attributes
    ----------
    params_ : torch.nn.Module
        The learnt decoder: `params_(states)` is its output, the data's mean or its log-odds, and
        `params_.prior_logits` are the log-odds of π.
    noise_variance_ : float
        Variance of the noise, only if `observable` is "gaussian".
    activation_probs_ : ndarray of shape (n_latents,)
        Mean of the latents over the data.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from evoem import TVAE
    >>> rng = np.random.default_rng(0)
    >>> where = rng.integers(0, 4, 400)  # one of four: two bits, but no sum of two patterns
    >>> X = 5 * np.eye(4)[where] + rng.normal(size=(400, 4))
    >>> model = TVAE(n_latents=2, hidden=(16,), batch_size=40, max_iter=60, tol=0, random_state=0)
    >>> estimate = model.fit(X).reconstruct(X)
    >>> bool((estimate.argmax(1) == where).mean() > 0.95)
    True
    """

    # What `BlackBox` asks its user for.
    statistics = None
    update = None
    constraints = None
    log_constant = None
    prepare_rows = None
    compiled = True
    vectorized = True
    library = "torch"

    def __init__(
        self,
        n_latents: int = 8,
        *,
        hidden: tuple[int, ...] = (64,),
        observable: str = "gaussian",
        learning_rate: float = 0.01,
        n_states: int | str | None = None,
        n_parents: int | None = None,
        n_children: int | None = None,
        n_generations: int = 2,
        parents: str = "fit",
        mutation: str = "uniform",
        crossover: bool = False,
        max_iter: int = 200,
        tol: float = 1e-4,
        batch_size: int | None = 100,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        callback: em.Callback | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_latents = n_latents
        self.hidden = hidden
        self.observable = observable
        self.learning_rate = learning_rate
        self.n_states = n_states
        self.n_parents = n_parents
        self.n_children = n_children
        self.n_generations = n_generations
        self.parents = parents
        self.mutation = mutation
        self.crossover = crossover
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    _structure = ("n_latents", "hidden", "observable")

    @staticmethod
    def log_joint(params: Any, X: Any, states: Any, observed: Any) -> Any:
        """log p(s, x) by a decoder, of PyTorch arrays."""
        return _decoders().log_joint(params, X, states, observed)

    @staticmethod
    def mean(params: Any, states: Any) -> Any:
        """Mean of the data given the states, by a decoder."""
        return _decoders().mean(params, states)

    @staticmethod
    def sampler(params: Any, n: int, rng: np.random.Generator) -> Any:
        """Data and states from a decoder."""
        return _decoders().sampler(params, n, rng)

    def params(self, X: NDArray[np.floating], n_latents: int, rng: np.random.Generator) -> Any:
        """The decoder to start from."""
        return _decoders().first_decoder(
            X, n_latents, rng, hidden=self.hidden, observable=self.observable
        )

    def optimizer(self, parameters: list[Any]) -> Any:
        """Adam."""
        return import_extra("torch", "PyTorch", "torch").optim.Adam(
            parameters, lr=self.learning_rate
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.hidden, tuple | list):
            raise ValueError(f"hidden must be a sequence of integers; got {self.hidden!r}.")
        for layer, size in enumerate(self.hidden):
            validation.integer(f"hidden[{layer}]", size, 1)
        validation.choice("observable", self.observable, OBSERVABLES)
        validation.real("learning_rate", self.learning_rate, 0.0, 1.0)

    def _prepare_data(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        if self.observable == "bernoulli":
            validation.binary(X, "set observable to 'gaussian'")
        return X

    def _take(self, params: BlackBoxParams) -> None:
        super()._take(params)
        if self.observable == "gaussian":
            self.noise_variance_ = self.params_.noise_variance.item()


TVAE.__doc__ = (TVAE.__doc__ or "").format(
    common=COMMON.replace(
        "batch_size : int or None, default=None", "batch_size : int or None, default=100"
    ),
    attributes=ATTRIBUTES,
)
