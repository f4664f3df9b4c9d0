"""Samplers against posteriors that are known exactly."""

import dataclasses
import itertools
import math

import pytest
import torch

import basis
from basis.errors import BasisError
from basis.mixings.matrix import mixture, mixtures
from basis.priors.gaussian import GaussianMixture
from basis.samplers.basis import Basis
from basis.samplers.noise import Noise, item_seeds
from basis.samplers.problem import Problem
from basis.samplers.steps import LangevinSteps


class OneStream(Noise):
    """One generator for the whole batch: tens of thousands of chains in seconds."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, like):
        return torch.randn(like.shape, dtype=like.dtype, generator=self.generator)

    def uniform(self, like):
        return torch.rand(like.shape, dtype=like.dtype, generator=self.generator)


def run(sampler, priors, mixing, m, chains, seed=0):
    problem = Problem(priors, mixing, m.expand(chains, -1, -1, -1), OneStream(seed))
    with torch.no_grad():
        for state in sampler.run(problem):
            x = state.x
    return x, problem


def gaussian_case():
    g = torch.Generator().manual_seed(3)
    priors = []
    for _ in range(2):
        root = torch.randn(4, 4, generator=g, dtype=torch.float64) * 0.08
        cov = root @ root.T + 0.003 * torch.eye(4, dtype=torch.float64)
        mean = torch.rand(1, 1, 2, 2, generator=g, dtype=torch.float64)
        priors.append(GaussianMixture(mean, cov[None]))
    m = torch.rand(1, 1, 2, 2, generator=g, dtype=torch.float64) * 1.5
    return priors, m


def exact_posterior(priors, alphas, m, sigma, gamma2):
    """Mean and precision of p_sigma(x) N(m; A x, gamma^2) for two Gaussian sources of four
    pixels.
    """
    eye = torch.eye(4, dtype=torch.float64)
    blocks = [torch.linalg.inv(p.covariances[0] + sigma**2 * eye) for p in priors]
    a = torch.cat([alpha * eye for alpha in alphas], dim=1)
    precision = torch.block_diag(*blocks) + a.T @ a / gamma2
    means = torch.cat([p.means[0] for p in priors])
    pull = torch.block_diag(*blocks) @ means + a.T @ m.flatten() / gamma2
    return torch.linalg.solve(precision, pull), precision


@pytest.mark.parametrize(("noise", "weight"), [(0.0, 1.0), (0.1, 2.0)])
def test_gaussian_posterior_mean_and_covariance(noise, weight):
    priors, m = gaussian_case()
    alphas, sigma, chains = (1.0, 0.5), 0.1, 5_000
    sampler = Basis(
        sigma_max=0.5, sigma_min=sigma, levels=4, steps=250, delta=0.04 * sigma**2, weight=weight
    )
    x, _ = run(sampler, priors, mixture(alphas).replace(noise=noise), m, chains)
    flat = x.flatten(1)
    mean, precision = exact_posterior(priors, alphas, m, sigma, sigma**2 / weight + noise**2)
    # Unadjusted Langevin with step eta has exactly this stationary covariance on a Gaussian.
    eta = sampler.delta
    exact = torch.linalg.inv(precision)
    stationary = torch.linalg.inv(precision - eta / 2 * precision @ precision)
    deviation = stationary.diagonal().sqrt()
    assert ((flat.mean(dim=0) - mean).abs() < 5 * deviation / math.sqrt(chains)).all()
    # Five standard errors of a covariance entry, in units of the deviations.
    error = (torch.cov(flat.T) - stationary) / deviation[:, None] / deviation
    assert error.abs().max() < 5 * math.sqrt(2 / chains)
    # And that is the posterior's own covariance but for the steps' size.
    bias = (stationary - exact) / exact.diagonal().sqrt()[:, None] / exact.diagonal().sqrt()
    assert bias.abs().max() < 0.1


def bimodal(weights):
    means = torch.tensor([0.1, 0.9], dtype=torch.float64).view(2, 1, 1, 1).expand(2, 1, 1, 2)
    return GaussianMixture(means.clone(), torch.full((2,), 1e-3), torch.tensor(weights))


def test_mode_weights():
    """Two ways to explain m = 1: their shares follow the priors' weights, 0.12 to 0.42."""
    priors = [bimodal([0.3, 0.7]), bimodal([0.6, 0.4])]
    m = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    sampler = Basis(sigma_max=1.0, sigma_min=0.02, levels=30, steps=40, delta=0.1 * 0.02**2)
    chains = 4000
    x, _ = run(sampler, priors, mixture((1.0, 1.0)), m, chains)
    first_low = (x[:, 0].mean(dim=(1, 2, 3)) < 0.5).double().mean().item()
    exact = 0.12 / 0.54
    standard_error = math.sqrt(exact * (1 - exact) / chains)
    # Steps of finite size freeze the modes a little early; that bias is stated as 0.02.
    assert abs(first_low - exact) < 4 * standard_error + 0.02
    together = x.sum(dim=1)
    assert (together - 1).abs().mean() < 0.1


def test_exchangeable_modes_are_met_equally():
    prior = bimodal([0.5, 0.5])
    m = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    sampler = Basis(sigma_min=0.02, levels=15, steps=20, delta=0.1 * 0.02**2)
    x, problem = run(sampler, [prior, prior], mixture(), m, 4000)
    share = (x[:, 0].mean(dim=(1, 2, 3)) < 0.5).double().mean().item()
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / 4000)
    assert problem.evaluations.max() == 15 * 20 * 2


def test_paper_defaults():
    """Pictures in [0, 1] are sampled as in the paper, whatever their spread."""
    s = Basis()
    assert (s.levels, s.steps) == (10, 100)
    means = torch.full((1, 1, 2, 2), 0.2, dtype=torch.float64)
    prior = GaussianMixture(means, torch.tensor([0.01]), value_range=(0.0, 1.0))
    problem = Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 2, 2), OneStream(0))
    sigmas = s.sigmas(problem)
    assert sigmas[0] == pytest.approx(1.0) and sigmas[-1] == pytest.approx(0.01)
    explicit = dataclasses.replace(s, sigma_max=sigmas[0], sigma_min=sigmas[-1], delta=2e-5)
    short = [dataclasses.replace(way, steps=2) for way in (s, explicit)]
    a, b = (
        [*way.run(Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 2, 2), OneStream(0)))][-1].x
        for way in short
    )
    assert torch.allclose(a, b, atol=1e-6)
    ratios = [b / a for a, b in itertools.pairwise(sigmas)]
    assert max(ratios) - min(ratios) < 1e-12


def test_one_step_is_the_formula(toy_prior):
    """The step, written out once more by hand."""
    m = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    mixing = mixture((0.7, 1.3))
    problem = Problem([toy_prior] * 2, mixing, m, OneStream(5))
    sampler = Basis(sigma_max=0.4, sigma_min=0.1, levels=2, steps=1, delta=1e-3, weight=1.5)
    states = list(sampler.run(problem))
    draw = OneStream(5)
    # Without a range, a box of the prior's spread about its mean.
    half = math.sqrt(3) * toy_prior.std
    x = toy_prior.center + half * (2 * draw.uniform(problem.empty()) - 1)
    for sigma, state in zip((0.4, 0.1), states, strict=True):
        eta = 1e-3 * sigma**2 / 0.1**2
        score = torch.stack([toy_prior.score(x[:, i], sigma) for i in range(2)], dim=1)
        left = m - 0.7 * x[:, 0] - 1.3 * x[:, 1]
        pull = torch.stack([0.7 * left, 1.3 * left], dim=1) * 1.5 / sigma**2
        x = x + eta * (score + pull) + math.sqrt(2 * eta) * draw.normal(x)
        assert torch.allclose(state.x, x) and state.sigma == pytest.approx(sigma)


def test_greedy_is_gradient_ascent_on_the_lagrangian():
    """On a Gaussian it ends at the one maximum, which is known."""
    priors, m = gaussian_case()
    sampler = Greedy(steps=3000, sigma=0.05, lagrangian=50.0)
    x, _ = run(sampler, priors, mixture((1.0, 0.5)), m, 1)
    mode, _ = exact_posterior(priors, (1.0, 0.5), m, 0.05, 1 / 50)
    assert torch.allclose(x.flatten(), mode, atol=1e-4)


def test_noise_conditioned_ascent_is_deterministic_after_its_start(toy_prior):
    m = torch.rand(2, 1, 4, 4, dtype=torch.float64)
    sampler = NoiseConditioned(start="zeros", steps=5)
    a, _ = run(sampler, [toy_prior] * 2, mixture(), m[:1], 2, seed=1)
    b, _ = run(sampler, [toy_prior] * 2, mixture(), m[:1], 2, seed=2)
    assert torch.equal(a, b)
    assert sampler.settings()["name"] == "noise-conditioned"


def test_several_mixtures_and_masks_run(toy_prior):
    rows = mixtures([(1.0, 0.5), (0.5, 1.0)])
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    x, _ = run(Basis(steps=20), [toy_prior] * 2, rows, rows(truth), 4)
    assert (x - truth).abs().mean() < 0.1


def test_divergence_is_reported(toy_prior):
    m = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    with pytest.raises(BasisError, match="diverged"):
        run(Basis(delta=1e-2, steps=200), [toy_prior] * 2, mixture(), m, 1)


def test_sigma_outside_the_priors_range(toy_prior):
    toy_prior.sigma_max = 0.5
    m = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    with pytest.raises(BasisError, match=r"sigma 1 is outside the prior's range.*0\.5"):
        run(Basis(sigma_max=1.0), [toy_prior] * 2, mixture(), m, 1)
    # A default is clipped to what the prior knows.
    x, _ = run(Basis(steps=2), [toy_prior] * 2, mixture(), m, 1)
    assert torch.isfinite(x).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": 0},
        {"steps": 0},
        {"delta": -1.0},
        {"delta": float("nan")},
        {"sigma_min": 2.0, "sigma_max": 1.0},
        {"temperature": -1.0},
        {"start": "ones"},
    ],
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(BasisError):
        Basis(**settings)


def test_seeds_follow_content_and_count_repeats():
    m = torch.rand(3, 1, 2, 2)
    seeds = item_seeds(m, 2, seed=0)
    assert item_seeds(m.flip(0), 2, seed=0) == seeds[::-1]
    assert item_seeds(m[1:2], 2, seed=0) == seeds[1:2]
    flat = [s for row in seeds for s in row] + [s for row in item_seeds(m, 2, 1) for s in row]
    twins = item_seeds(torch.cat([m[:1], m[:1]]), 1, seed=0)
    assert len(set(flat)) == 12 and twins[0] != twins[1]
    assert basis.samplers.SAMPLERS["basis"] is Basis


def test_langevin_steps_keep_the_variance_of_a_gaussian_however_large_they_are():
    """Along stiff directions of the prior and of the mixture, at a rate of 1."""
    sigma, count = 0.3, 4000
    prior = GaussianMixture(torch.zeros(1, 1, 2), torch.tensor([1e-4]))
    m = torch.zeros(count, 1, 2, dtype=torch.float64)
    problem = Problem([prior, prior], mixture((0.5, 0.5)), m, Noise(range(count)))
    move, weight = LangevinSteps(problem, 1.0, 4.0), 4.0
    x = problem.center()
    for _ in range(12):
        x = move(x, sigma)
    own, pulled = 1e-4 + sigma**2, (0.5 * sigma) ** 2 / weight
    # The sum of the two is seen through 0.5; their difference is not.
    both = 1 / (1 / (2 * own) + 0.25 / pulled)
    total, apart = x.sum(dim=1).var().item(), (x[:, 0] - x[:, 1]).var().item()
    assert total == pytest.approx(both, rel=0.05)
    assert apart == pytest.approx(2 * own, rel=0.05)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_langevin_steps_do_not_depend_on_the_units_of_the_observation(toy_prior, temperature):
    start = torch.rand(3, 2, *toy_prior.shape, generator=torch.Generator().manual_seed(0))
    found = []
    for alpha in (1.0, 0.1):
        mixing = mixture((alpha, alpha))
        m = mixing(torch.full_like(start, 0.4))
        move = LangevinSteps(
            Problem([toy_prior] * 2, mixing, m, Noise(range(3))), 1.0, 4.0, temperature
        )
        found.append(move(move(start, 0.5), 0.4))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
