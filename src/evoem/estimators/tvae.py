"""The estimator of a variational autoencoder without an encoder: `TVAE`."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoem import validation
from evoem.black_box.array_libraries import import_extra
from evoem.black_box.model import BlackBoxParams
from evoem.black_box.specification import Specification
from evoem.estimators.black_box import LogJointEstimator
from evoem.estimators.docstrings import documented

OBSERVABLES = ("gaussian", "bernoulli")


def _decoders() -> Any:
    """`evoem.black_box.decoder`, which needs PyTorch."""
    import_extra("torch", "PyTorch", "torch")

    from evoem.black_box import decoder

    return decoder


@documented
@dataclass(eq=False, repr=False)
class TVAE(LogJointEstimator):
    """A variational autoencoder with binary latents: a neural decoder, and no encoder.

    Latents are independent, s_h ~ Bernoulli(π_h), and a neural network maps them to the mean of the
    data. Its weights follow the gradient of the truncated bound, whose states evolve as in Drefs,
    Guiraud, Panagiotou and Lücke, *Direct Evolutionary Optimization of Variational Autoencoders
    With Binary Latents*, 2022: without amortised inference or reparametrisation. Needs PyTorch, the
    extra `torch`.

    Parameters
    ----------
    {n_latents}
    {common}
    hidden : sequence of int, default=(64,)
        Number of leaky rectified linear units of each hidden layer of the decoder, from the latents
        to the data. () is a linear decoder.
    observable : {"gaussian", "bernoulli"}, default="gaussian"
        Real data with Gaussian noise, whose variance is learnt, or binary data of 0, 1 and NaN.
    learning_rate : float, default=0.01
        Learning rate of Adam, which makes a step after each batch. If `batch_size` is None there is
        one step per iteration, which is taken only if it does not lower the bound.

    Attributes
    ----------
    params_ : torch.nn.Module
        The learnt decoder: `params_(states)` is its output, the mean of the data or its log-odds,
        and `params_.prior_logits` are the log-odds of π.
    noise_variance_ : float
        Variance of the noise, only if `observable` is "gaussian".
    activation_probs_ : ndarray of shape (n_latents,)
        Posterior means of the latents, averaged over the data.
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

    _: KW_ONLY
    batch_size: int | None = 100
    hidden: Sequence[int] = (64,)
    observable: str = "gaussian"
    learning_rate: float = 0.01

    _structure = ("n_latents", "hidden", "observable")

    def _specification(self) -> Specification:
        decoder, torch = _decoders(), import_extra("torch", "PyTorch", "torch")
        return Specification(
            decoder.log_joint,
            partial(decoder.initial_decoder, hidden=self.hidden, observable=self.observable),
            optimizer=partial(torch.optim.Adam, lr=self.learning_rate),
            mean=decoder.mean,
            sampler=decoder.sampler,
            vectorized=True,
            library="torch",
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        validation.integers("hidden", self.hidden, 1)
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
