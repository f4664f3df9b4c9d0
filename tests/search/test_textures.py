"""Correlated sources: methods and samplers at their default settings, against exact posteriors.

Textures are sums of smooth and rough Gaussian processes. Their values move together, which a
variance per value cannot express.
"""

import math

import pytest
import torch

import basis
from basis.priors.gaussian import GaussianMixture
from basis.samplers.gibbs import Gibbs


def process(size, dims, length, std):
    """The covariance of a Gaussian process on a grid of this size, with a squared exponential."""
    line = torch.arange(size, dtype=torch.float64)
    points = torch.cartesian_prod(*[line] * dims).view(-1, dims)
    square = (points[:, None] - points).square().sum(dim=2)
    eye = torch.eye(len(points), dtype=torch.float64)
    return std**2 * torch.exp(-square / (2 * length**2)) + 1e-6 * eye


SMOOTH_ROUGH = ((4.0, 0.2), (0.8, 0.12))
CASES = {
    "smooth and rough": (12, 2, SMOOTH_ROUGH, 0.0),
    "similar": (12, 2, ((3.0, 0.2), (1.5, 0.12)), 0.0),
    "noisy": (12, 2, SMOOTH_ROUGH, 0.05),
    "noisy sound": (96, 1, ((12.0, 0.3), (1.5, 0.15)), 0.05),
    "three": (12, 2, ((6.0, 0.25), (2.0, 0.15), (0.6, 0.1)), 0.0),
}


class Textures:
    """Priors, mixtures and their exact posterior."""

    def __init__(self, case, count, seed=0):
        size, dims, kinds, tau = CASES[case]
        covariances = [process(size, dims, *kind) for kind in kinds]
        shape = (1, *[size] * dims)
        mean = torch.full((1, *shape), 0.5, dtype=torch.float64)
        self.priors = [GaussianMixture(mean, c[None]) for c in covariances]
        self.mixing = basis.mixture((1.0,) * len(kinds)).replace(noise=tau)
        g = torch.Generator().manual_seed(seed)
        truth = torch.stack([p.exact_samples(count, g) for p in self.priors], dim=1)
        noise = torch.randn(count, *shape, generator=g, dtype=torch.float64)
        self.observation = truth.sum(dim=1) + tau * noise
        prior = torch.block_diag(*covariances)
        eye = torch.eye(math.prod(shape), dtype=torch.float64)
        a = torch.cat([eye] * len(kinds), dim=1)
        gain = prior @ a.T @ torch.linalg.inv(a @ prior @ a.T + tau**2 * eye)
        middle = torch.full((len(prior),), 0.5, dtype=torch.float64)
        exact = middle + (self.observation.flatten(1) - a @ middle) @ gain.T
        self.mean = exact.view(truth.shape)
        self.std = (prior - gain @ a @ prior).diagonal().clamp_min(0).mean().sqrt().item()

    def separate(self, **settings):
        return basis.separate(self.observation, self.priors, mixing=self.mixing, **settings)

    def distance(self, x):
        """Root mean square distance from the exact mean, in posterior standard deviations."""
        return (x - self.mean).square().mean().sqrt().item() / self.std


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize(("method", "most"), [("fast", 0.5), ("balanced", 0.35)])
def test_methods_find_the_posterior_mean(case, method, most):
    textures = Textures(case, 4)
    result = textures.separate(method=method)
    assert textures.distance(result.sources) < most


@pytest.mark.parametrize("case", list(CASES))
def test_the_mean_as_estimate(case):
    textures = Textures(case, 4)
    result = textures.separate(method="fast", estimate="mean")
    assert textures.distance(result.sources) < 0.6
    assert result.evaluations <= 100 * len(textures.priors)
    assert result.samples is None


@pytest.mark.parametrize("case", ["smooth and rough", "noisy sound"])
def test_the_mean_of_samples_is_nearer_than_any_sample(case):
    textures = Textures(case, 2)
    result = textures.separate(method="gibbs", estimate="mean", samples=12)
    assert textures.distance(result.mean) < 0.6 * min(
        textures.distance(x) for x in result.samples.unbind(1)
    )
    torch.testing.assert_close(result.sources, result.mean, atol=1e-3, rtol=0)
    left = textures.mixing.residual(result.sources, textures.observation).abs().max()
    assert (left < 1e-3) == (textures.mixing.noise == 0)


def test_gibbs_converges_to_the_posterior():
    textures = Textures("smooth and rough", 1)
    result = textures.separate(method=Gibbs(steps=1000), samples=100)
    # The mean of 100 samples is itself 0.1 standard deviations off.
    assert textures.distance(result.mean) < 0.2
    assert result.std.square().mean().sqrt().item() / textures.std == pytest.approx(1, abs=0.1)
