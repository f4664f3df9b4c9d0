"""Correlated sources: efforts and samplers at their default settings, against exact posteriors.

Textures are Gaussian processes, smooth and rough, added up. A variance for each value does not know
that values move together, which is what most real signals do.
"""

import math

import pytest
import torch

import basis
from basis._separate import separate
from basis.priors.gaussian import GaussianMixture


def process(size, dims, length, deviation):
    """The covariance of a Gaussian process on a grid of this size, with a squared exponential."""
    line = torch.arange(size, dtype=torch.float64)
    points = torch.cartesian_prod(*[line] * dims).view(-1, dims)
    square = (points[:, None] - points).square().sum(dim=2)
    eye = torch.eye(len(points), dtype=torch.float64)
    return deviation**2 * torch.exp(-square / (2 * length**2)) + 1e-6 * eye


SMOOTH_ROUGH = ((4.0, 0.2), (0.8, 0.12))
CASES = {
    "smooth and rough": (12, 2, SMOOTH_ROUGH, 0.0),
    "alike": (12, 2, ((3.0, 0.2), (1.5, 0.12)), 0.0),
    "very smooth and white": (12, 2, ((6.0, 0.2), (0.5, 0.2)), 0.0),
    "noisy": (12, 2, SMOOTH_ROUGH, 0.05),
    "sound": (96, 1, ((12.0, 0.3), (1.5, 0.15)), 0.0),
    "noisy sound": (96, 1, ((12.0, 0.3), (1.5, 0.15)), 0.05),
    "three": (12, 2, ((6.0, 0.25), (2.0, 0.15), (0.6, 0.1)), 0.0),
    "three sounds": (96, 1, ((20.0, 0.3), (4.0, 0.2), (0.8, 0.1)), 0.0),
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
        self.m = truth.sum(dim=1) + tau * noise
        prior = torch.block_diag(*covariances)
        eye = torch.eye(math.prod(shape), dtype=torch.float64)
        a = torch.cat([eye] * len(kinds), dim=1)
        gain = prior @ a.T @ torch.linalg.inv(a @ prior @ a.T + tau**2 * eye)
        middle = torch.full((len(prior),), 0.5, dtype=torch.float64)
        exact = middle + (self.m.flatten(1) - a @ middle) @ gain.T
        self.mean = exact.view(truth.shape)
        self.deviation = (prior - gain @ a @ prior).diagonal().clamp_min(0).mean().sqrt().item()

    def distance(self, x):
        """Root mean square distance from the exact mean, in posterior standard deviations."""
        return (x - self.mean).square().mean().sqrt().item() / self.deviation


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize(("effort", "most"), [("fast", 0.5), ("balanced", 0.35), ("best", 0.25)])
def test_efforts_find_the_posterior_mean(case, effort, most):
    textures = Textures(case, 8)
    r = separate(textures.m, textures.priors, mixing=textures.mixing, effort=effort)
    assert textures.distance(r.sources) < most


@pytest.mark.parametrize("case", ["smooth and rough", "noisy sound"])
def test_the_mean_of_draws_is_nearer_than_any_draw(case):
    textures = Textures(case, 4)
    settings = {"mixing": textures.mixing, "choose": "mean"}
    r = separate(textures.m, textures.priors, sampler="gibbs", samples=12, **settings)
    draws = [textures.distance(x) for x in r.samples.unbind(1)]
    assert textures.distance(r.sources) < 0.6 * min(draws)
    torch.testing.assert_close(r.sources, r.mean, atol=1e-3, rtol=0)
    left = textures.mixing.residual(r.sources, textures.m).abs().max()
    assert (left < 1e-3) == (textures.mixing.noise == 0)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_an_effort_for_the_mean(case, effort):
    textures = Textures(case, 4)
    settings = {"mixing": textures.mixing, "choose": "mean"}
    r = separate(textures.m, textures.priors, effort=effort, **settings)
    assert textures.distance(r.sources) < 0.6
    assert r.evaluations <= {"fast": 100, "balanced": 300}[effort] * len(textures.priors)
    # Three sources with priors of their own cost a chain to be put in order.
    chains = {"fast": 2, "balanced": 3 if len(textures.priors) == 3 else 4}
    assert r.samples.shape[1] == chains[effort]
    with pytest.raises(basis.BasisError, match="samples"):
        _ = r.std  # chains that stop early are no draws of the posterior


@pytest.mark.parametrize("case", ["smooth and rough", "noisy", "sound", "three"])
def test_gibbs_converges_to_the_posterior(case):
    textures = Textures(case, 2)
    found = {}
    for steps in (98, 1500):
        r = separate(
            textures.m,
            textures.priors,
            mixing=textures.mixing,
            sampler="gibbs",
            steps=steps,
            samples=128,
        )
        spread = r.samples.std(dim=1).square().mean().sqrt().item()
        found[steps] = (textures.distance(r.samples.mean(dim=1)), spread / textures.deviation)
    # The mean of 128 draws is itself 0.09 deviations off.
    assert found[1500][0] < 0.15
    assert abs(found[1500][1] - 1) < 0.1
    assert found[98][0] < 0.6
