"""Gaussian mixtures, against torch.distributions."""

import pytest
import torch

from basis.priors.gaussian import GaussianMixture


@pytest.fixture
def mixture_prior():
    g = torch.Generator().manual_seed(0)
    root = torch.randn(3, 8, 8, generator=g, dtype=torch.float64) * 0.3
    means = torch.rand(3, 2, 2, 2, generator=g, dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 3.0])
    return GaussianMixture(means, root @ root.mT, weights)


@pytest.mark.parametrize("sigma", [0.05, 0.4, 3.0])
def test_gaussian_mixture_score_is_the_gradient_of_its_density(mixture_prior, sigma):
    x = torch.rand(5, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixture_prior.log_prob(x, sigma).sum(), x)
    assert torch.allclose(mixture_prior.score(x, sigma), gradient, atol=1e-8)


def test_gaussian_mixture_density_matches_torch_distributions(mixture_prior):
    from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

    p, sigma = mixture_prior, 0.3
    noisy = p.covariances + sigma**2 * torch.eye(8, dtype=torch.float64)
    oracle = MixtureSameFamily(Categorical(p.weights), MultivariateNormal(p.means, noisy))
    x = torch.rand(6, 2, 2, 2, dtype=torch.float64)
    assert torch.allclose(p.log_prob(x, sigma), oracle.log_prob(x.flatten(1)))


def test_gaussian_mixture_takes_a_sigma_per_item(mixture_prior):
    x = torch.rand(3, 2, 2, 2, dtype=torch.float64)
    sigmas = torch.tensor([0.1, 1.0, 5.0])
    together = mixture_prior.denoise(x, sigmas)
    alone = [mixture_prior.denoise(x[i : i + 1], s.item()) for i, s in enumerate(sigmas)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-6)


def test_gaussian_mixture_samples_have_its_moments(mixture_prior):
    g = torch.Generator().manual_seed(1)
    drawn = mixture_prior.exact_samples(20_000, g).flatten(1)
    mean = mixture_prior.weights @ mixture_prior.means
    error = drawn.std(dim=0) / 20_000**0.5
    assert ((drawn.mean(dim=0) - mean).abs() < 5 * error).all()


def test_std_and_center_are_those_of_the_values(mixture_prior):
    drawn = mixture_prior.exact_samples(20_000, torch.Generator().manual_seed(1))
    assert mixture_prior.center == pytest.approx(drawn.mean().item(), abs=0.02)
    assert mixture_prior.std == pytest.approx(drawn.std().item(), rel=0.03)
