"""Exact posteriors of Gaussian sources, and samplers run on many chains at once."""

import math

import torch

import basis
from basis.priors.gaussian import GaussianMixture
from basis.samplers.problem import Noise, Problem

F64 = torch.float64
SHAPE = (2, 5)
WEIGHTS = torch.randn(7, 20, generator=torch.Generator().manual_seed(1), dtype=F64)
MIXINGS = {
    "mixture": basis.mixture((1.0, 0.5)),
    "mixtures": basis.mixtures([(1.0, 0.5), (0.3, -1.0)]),
    "masked": basis.mixture((1.0, 0.5)).replace(mask=torch.tensor([1.0, 0, 1, 1, 0])),
    "convolution": basis.convolution(torch.randn(2, 3, generator=torch.Generator().manual_seed(1))),
    "downsample": basis.downsample(5, (1.0, 0.5)),
    "linear": basis.linear(lambda x: x.flatten(1) @ WEIGHTS.to(x).T),
}
"""Mixings of every kind, for sources of shape `SHAPE`."""


class OneStream(Noise):
    """One generator for the whole batch: thousands of chains in seconds."""

    def __init__(self, seed=0):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, like):
        return torch.randn(like.shape, dtype=like.dtype, generator=self.generator)

    def uniform(self, like):
        return torch.rand(like.shape, dtype=like.dtype, generator=self.generator)


def run(sampler, priors, mixing, m, chains, seed=0):
    """The last state of a sampler, (chains, ...), and its problem."""
    problem = Problem(priors, mixing, m.expand(chains, *m.shape[1:]), OneStream(seed))
    with torch.no_grad():
        for state in sampler.run(problem):
            x = state.x
    return x, problem


def gaussians(shape, *, correlated, seed=7, **settings):
    """Two Gaussian sources, well inside of [-1, 1]."""
    g = torch.Generator().manual_seed(seed)
    size, priors = math.prod(shape), []
    for _ in range(2):
        if correlated:
            root = 0.05 * torch.randn(size, size, generator=g, dtype=F64)
            covariance = root @ root.T + 0.003 * torch.eye(size, dtype=F64)
        else:
            covariance = (torch.rand(size, generator=g, dtype=F64) * 0.03 + 0.005).diag()
        mean = torch.rand(1, *shape, generator=g, dtype=F64) - 0.5
        priors.append(GaussianMixture(mean, covariance[None], **settings))
    return priors


def bimodal(weights):
    """Two modes of two values: both 0.1, or both 0.9."""
    means = torch.tensor([0.1, 0.9], dtype=F64).view(2, 1, 1, 1).expand(2, 1, 1, 2)
    return GaussianMixture(means.clone(), torch.full((2,), 1e-3), torch.tensor(weights))


def dense(mixing, shape):
    """A as one matrix, by applying it to unit vectors."""
    size = mixing.sources * math.prod(shape)
    return mixing(torch.eye(size, dtype=F64).view(size, mixing.sources, *shape)).flatten(1).T


def exact_posterior(priors, mixing, m, tau2=0.0, sigma=0.0):
    """Mean and covariance of Gaussian sources noised by sigma given m = A x + noise of tau^2."""
    a = dense(mixing, priors[0].shape)
    noise = sigma**2 * torch.eye(math.prod(priors[0].shape), dtype=F64)
    prior = torch.block_diag(*(p.covariances[0] + noise for p in priors))
    means = torch.cat([p.means[0].flatten() for p in priors])
    gram = a @ prior @ a.T + tau2 * torch.eye(len(a), dtype=F64)
    gain = prior @ a.T @ torch.linalg.pinv(gram, hermitian=True)
    return means + gain @ (m.flatten() - a @ means), prior - gain @ a @ prior


def check_gaussian(x, mean, covariance, *, mean_slack=0.0, covariance_slack=0.0):
    """Asserts that samples have this mean and covariance, within five standard errors and slack."""
    flat, std = x.flatten(1), covariance.diagonal().clamp_min(1e-12).sqrt()
    allowed = (5 / math.sqrt(len(flat)) + mean_slack) * std
    assert ((flat.mean(dim=0) - mean).abs() < allowed).all()
    error = (torch.cov(flat.T) - covariance) / std[:, None] / std
    assert error.abs().max() < 5 * math.sqrt(2 / len(flat)) + covariance_slack


def check_draws(x, mean, covariance, sigma):
    """Asserts that samples are those of a Gaussian with added noise of level sigma."""
    check_gaussian(x, mean, covariance + sigma**2 * torch.eye(len(mean), dtype=F64))
