"""A neural decoder of binary latents, in PyTorch: import this module only when it is needed.

Latents are independent, s_h ~ Bernoulli(π_h), and a network f maps them to the data:

    gaussian     x_d ~ N(f_d(s), σ²)
    bernoulli    x_d ~ Bernoulli(1 / (1 + exp(-f_d(s))))

The network computes data of zero mean and unit scale. Mean and scale are stored beside its weights
but not learnt, so the same step size suits data of any scale.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

INITIAL_ACTIVE = 2.0  # latents of a row, on average over the prior
INITIAL_SHARE = 0.3  # of the way from the data's mean to a data point that a latent takes
LEAST_MEAN = 0.01  # of a binary feature, whose log-odds would be infinite
LEAST_VARIANCE = 1e-6  # of the noise, in the data's own scale: 0 would be a bound without end


class Decoder(nn.Module):
    """Prior, network and noise."""

    def __init__(
        self, n_latents: int, hidden: Sequence[int], n_features: int, observable: str
    ) -> None:
        super().__init__()
        self.prior_logits = nn.Parameter(torch.zeros(n_latents))
        sizes = (n_latents, *hidden, n_features)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.center = nn.Parameter(torch.zeros(n_features), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)
        self.gaussian = observable == "gaussian"
        if self.gaussian:
            self.log_noise_variance = nn.Parameter(torch.zeros(()))

    def forward(self, states: Tensor) -> Tensor:
        """f(s)."""
        for layer in self.layers[:-1]:
            states = nn.functional.leaky_relu(layer(states))
        found: Tensor = self.center + self.scale * self.layers[-1](states)
        return found

    @property
    def noise_variance(self) -> Tensor:
        """σ²."""
        found: Tensor = self.scale**2 * (self.log_noise_variance.exp() + LEAST_VARIANCE)
        return found


def log_joint(params: Decoder, X: Tensor, states: Tensor, observed: Tensor) -> Tensor:
    """log p(s, x) of observed values, (n, s)."""
    log_prior = states @ params.prior_logits - nn.functional.softplus(params.prior_logits).sum()
    output = params(states)
    if params.gaussian:
        variance = params.noise_variance
        squares = ((X[:, None] - output) ** 2 * observed[:, None]).sum(-1)
        log_norms = observed.sum(-1, keepdim=True) * (2 * math.pi * variance).log()
        return log_prior - 0.5 * (squares / variance + log_norms)
    log_likelihood = X[:, None] * output - nn.functional.softplus(output)
    return log_prior + (log_likelihood * observed[:, None]).sum(-1)


def mean(params: Decoder, states: Tensor) -> Tensor:
    """Of the data given the states."""
    output: Tensor = params(states)
    return output if params.gaussian else output.sigmoid()


def sampler(
    params: Decoder, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Data and states."""
    probs = params.prior_logits.sigmoid().numpy()
    states = rng.random((n, len(probs))) < probs
    means = mean(params, torch.from_numpy(states).to(params.center.dtype)).double().numpy()
    if params.gaussian:
        noise = math.sqrt(params.noise_variance.item())
        return means + noise * rng.normal(size=means.shape), states
    return (rng.random(means.shape) < means).astype(np.float64), states


def initial_decoder(
    X: NDArray[np.floating],
    n_latents: int,
    rng: np.random.Generator,
    *,
    hidden: Sequence[int],
    observable: str,
) -> Decoder:
    """A decoder to start from; X is NaN where values are missing.

    A latent alone moves the output some way from the data's mean to a random data point, so that
    each has something to explain from the start: random output weights leave some without.
    """
    seen = ~np.isnan(X)
    center = np.where(seen, X, 0).sum(0, dtype=np.float64) / np.maximum(seen.sum(0), 1)
    away = np.where(seen, X - center, 0.0)
    spread = math.sqrt((away**2).sum() / seen.sum()) or 1.0
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        decoder: Decoder = Decoder(n_latents, hidden, X.shape[1], observable).double()
        decoder.prior_logits.fill_(_log_odds(min(INITIAL_ACTIVE / n_latents, 0.5)))
        if decoder.gaussian:
            decoder.center.copy_(torch.from_numpy(center))
            decoder.scale.fill_(spread)
        else:
            likely = np.clip(center, LEAST_MEAN, 1 - LEAST_MEAN)
            decoder.center.copy_(torch.from_numpy(_log_odds(likely)))
        alone = torch.eye(n_latents, dtype=torch.float64)
        for layer in decoder.layers[:-1]:
            # Of variance 1 for one active latent, and kept by the layers after the first.
            gain = 1.0 if layer is decoder.layers[0] else math.sqrt(2 / layer.in_features)
            layer.weight.copy_(torch.from_numpy(gain * rng.normal(size=layer.weight.shape)))
            layer.bias.zero_()
            alone = nn.functional.leaky_relu(layer(alone))
        wanted = INITIAL_SHARE / spread * away[rng.choice(len(X), n_latents)]
        weights = np.linalg.lstsq(alone.numpy(), wanted)[0]
        decoder.layers[-1].weight.copy_(torch.from_numpy(weights.T))
        decoder.layers[-1].bias.zero_()
    if X.dtype == np.float32:
        decoder.float()
    return decoder


def _log_odds(probability: Any) -> Any:
    return np.log(probability) - np.log1p(-probability)
