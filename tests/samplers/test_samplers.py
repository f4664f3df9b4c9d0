"""Samplers against posteriors that are known exactly."""

import dataclasses
import itertools
import json
import math

import pytest
import torch
from posteriors import (
    F64,
    OneStream,
    bimodal,
    check_draws,
    check_gaussian,
    exact_posterior,
    gaussians,
    run,
)

import basis
from basis.errors import BasisError
from basis.mixings.matrix import grey, mixture, mixtures
from basis.priors.gaussian import GaussianMixture
from basis.samplers import SAMPLERS, Ancestral, Ascent, Basis, Dirac, Gibbs, Langevin
from basis.samplers.langevin import two_rates
from basis.samplers.problem import Noise, Problem
from basis.samplers.sampler import LangevinSteps, geometric, sample_clean
from basis.settings import SAMPLER_NAMES, settings_from

SHAPE = (2, 5)


def mixing_of(kind):
    g = torch.Generator().manual_seed(1)
    if kind == "masked":
        return mixture((1.0, 0.5)).replace(mask=torch.tensor([1.0, 0, 1, 1, 0])).fit(SHAPE)
    if kind == "convolution":
        return basis.convolution(torch.randn(2, 3, generator=g))
    if kind == "linear":
        weights = torch.randn(7, 20, generator=g, dtype=F64)
        return basis.linear(lambda x: x.flatten(1) @ weights.to(x).T).fit(SHAPE)
    return mixture((1.0, 0.5)).fit(SHAPE)


def observation(priors, mixing):
    g = torch.Generator().manual_seed(2)
    return mixing(torch.stack([p.exact_samples(1, g) for p in priors], dim=1))


def test_the_registry():
    assert tuple(SAMPLERS) == SAMPLER_NAMES
    for name, kind in SAMPLERS.items():
        sampler = kind()
        record = json.loads(json.dumps(sampler.settings()))
        assert record.pop("name") == name == sampler.name
        assert settings_from(kind, record, name) == sampler
        assert all(f.metadata["help"] for f in dataclasses.fields(kind))


@pytest.mark.parametrize("tau", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["mixture", "masked", "convolution", "linear"])
def test_gibbs_is_exact_for_independent_values(tau, kind):
    priors, sigma = gaussians(SHAPE, correlated=False), 0.05
    mixing = mixing_of(kind).replace(noise=tau)
    m = observation(priors, mixing)
    x, _ = run(Gibbs(steps=60, sigma_switch=sigma, gibbs_fraction=1.0), priors, mixing, m, 1500)
    check_draws(x, *exact_posterior(priors, mixing, m, tau**2), sigma)


@pytest.mark.parametrize("steps", [2, 12])
@pytest.mark.parametrize(("tau", "churn"), [(0.0, 1.0), (0.1, 1.0), (0.0, 3.0)])
def test_ancestral_steps_are_exact_for_independent_values(tau, churn, steps):
    priors, sigma = gaussians(SHAPE, correlated=False), 0.1
    mixing = mixing_of("mixture").replace(noise=tau)
    m = observation(priors, mixing)
    # The first noise level is so large that the initial guess is forgotten.
    sampler = Ancestral(steps=steps, sigma_max=200.0, sigma_min=sigma, churn=churn)
    x, _ = run(sampler, priors, mixing, m, 5000)
    check_draws(x, *exact_posterior(priors, mixing, m, tau**2), sigma)


def test_ancestral_steps_at_temperature_zero_are_too_narrow():
    priors = gaussians(SHAPE, correlated=False)
    m = observation(priors, mixing_of("mixture"))
    wide, narrow = (
        run(Ancestral(6, 50.0, 0.02, temperature=t), priors, mixing_of("mixture"), m, 2000)[0]
        for t in (1.0, 0.0)
    )
    assert (narrow.std(dim=0) < 0.9 * wide.std(dim=0)).all()


def test_gibbs_and_langevin_have_the_posterior_of_correlated_values():
    priors = gaussians(SHAPE, correlated=True)
    mixing = mixing_of("mixture")
    m = observation(priors, mixing)
    sampler = Gibbs(steps=600, sigma_max=0.5, sigma_switch=0.03, sigma_min=0.01, gibbs_fraction=0.6)
    x, _ = run(sampler, priors, mixing, m, 1000)
    mean, covariance = exact_posterior(priors, mixing, m, 0.0, 0.01)
    check_gaussian(x, mean, covariance, mean_slack=0.15, covariance_slack=0.15)


@pytest.mark.parametrize(
    ("kind", "tau"), [("mixture", 0.0), ("mixture", 0.1), ("convolution", 0.1)]
)
def test_langevin_has_the_posterior_of_correlated_values(kind, tau):
    priors, sigma = gaussians(SHAPE, correlated=True), 0.1
    mixing = mixing_of(kind).replace(noise=tau)
    m = observation(priors, mixing)
    sampler = Langevin(
        steps=400, sigma_switch=0.12, sigma_min=sigma, slow_fraction=0.5, rate=0.05, weight=2.0
    )
    x, _ = run(sampler, priors, mixing, m, 600)
    gain = mixing.gain(torch.zeros(1, 2, *SHAPE, dtype=F64))
    exact = exact_posterior(priors, mixing, m, (gain * sigma) ** 2 / 2 + tau**2, sigma)
    check_gaussian(x, *exact, mean_slack=0.05, covariance_slack=0.1)


@pytest.mark.parametrize(("tau", "weight"), [(0.0, 1.0), (0.1, 2.0)])
def test_basis_has_the_posterior_of_correlated_values(tau, weight):
    priors, sigma = gaussians(SHAPE, correlated=True), 0.1
    mixing = mixing_of("mixture").replace(noise=tau)
    m = observation(priors, mixing)
    eta = 0.04 * sigma**2
    sampler = Basis(sigma_max=0.5, sigma_min=sigma, levels=4, steps=250, delta=eta, weight=weight)
    x, _ = run(sampler, priors, mixing, m, 1500)
    mean, covariance = exact_posterior(priors, mixing, m, sigma**2 / weight + tau**2, sigma)
    # Unadjusted Langevin dynamics with step eta has exactly this covariance on a Gaussian.
    precision = torch.linalg.inv(covariance)
    stationary = torch.linalg.inv(precision - eta / 2 * precision @ precision)
    check_gaussian(x, mean, stationary, mean_slack=0.02, covariance_slack=0.02)


@pytest.mark.parametrize(
    "sampler",
    [
        Basis(sigma_max=1.0, sigma_min=0.02, levels=30, steps=40, delta=0.1 * 0.02**2),
        Gibbs(steps=200, sigma_max=2.0, sigma_switch=0.1, sigma_min=0.02),
        Langevin(steps=1200, sigma_switch=0.1, sigma_min=0.02, rate=0.1, weight=1.0),
    ],
    ids=lambda s: s.name,
)
def test_modes_have_the_weights_of_the_posterior(sampler):
    """m = 1 has two explanations, of weights 0.12 and 0.42."""
    priors = [bimodal([0.3, 0.7]), bimodal([0.6, 0.4])]
    m = torch.ones(1, 1, 1, 2, dtype=F64)
    chains, exact = 1000, 0.12 / 0.54
    x, _ = run(sampler, priors, mixture(), m, chains)
    found = (x[:, 0].mean(dim=(1, 2, 3)) < 0.5).double().mean().item()
    # Annealing in finitely many steps has a small bias.
    assert abs(found - exact) < 4 * math.sqrt(exact * (1 - exact) / chains) + 0.03


def test_equal_priors_have_equal_modes():
    prior = bimodal([0.5, 0.5])
    m = torch.ones(1, 1, 1, 2, dtype=F64)
    sampler = Basis(sigma_min=0.02, levels=15, steps=20, delta=0.1 * 0.02**2)
    x, problem = run(sampler, [prior, prior], mixture(), m, 2000)
    found = (x[:, 0].mean(dim=(1, 2, 3)) < 0.5).double().mean().item()
    assert abs(found - 0.5) < 4 * math.sqrt(0.25 / 2000)
    assert (problem.evaluations == 2 * sampler.evaluations).all() and sampler.evaluations == 300


def test_the_defaults_of_basis_are_those_of_the_paper():
    """For pictures in [0, 1], whatever their standard deviation."""
    means = torch.full((1, 1, 2, 2), 0.2, dtype=F64)
    prior = GaussianMixture(means, torch.tensor([0.01]), value_range=(0.0, 1.0))
    problem = Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 2, 2), OneStream())
    sampler = Basis()
    sigmas = sampler.sigmas(problem)
    assert (sampler.levels, sampler.steps) == (10, 100)
    assert sigmas[0] == pytest.approx(1.0) and sigmas[-1] == pytest.approx(0.01)
    ratios = [b / a for a, b in itertools.pairwise(sigmas)]
    assert max(ratios) - min(ratios) < 1e-12
    explicit = dataclasses.replace(sampler, sigma_max=1.0, sigma_min=0.01, delta=2e-5)
    m = torch.zeros(1, 1, 2, 2)
    a, b = (
        run(dataclasses.replace(s, steps=2), [prior], mixture((1.0,)), m, 1)[0]
        for s in (sampler, explicit)
    )
    assert torch.allclose(a, b, atol=1e-6)


def test_a_step_of_basis_is_the_formula(toy_prior):
    m = torch.rand(3, 1, 4, 4, dtype=F64)
    problem = Problem([toy_prior] * 2, mixture((0.7, 1.3)), m, OneStream(5))
    sampler = Basis(sigma_max=0.4, sigma_min=0.1, levels=2, steps=1, delta=1e-3, weight=1.5)
    states = list(sampler.run(problem))
    noise = OneStream(5)
    half = math.sqrt(3) * toy_prior.std
    x = toy_prior.center + half * (2 * noise.uniform(problem.empty()) - 1)
    for sigma, state in zip((0.4, 0.1), states, strict=True):
        eta = 1e-3 * sigma**2 / 0.1**2
        score = torch.stack([toy_prior.score(x[:, i], sigma) for i in range(2)], dim=1)
        left = m - 0.7 * x[:, 0] - 1.3 * x[:, 1]
        likelihood = torch.stack([0.7 * left, 1.3 * left], dim=1) * 1.5 / sigma**2
        x = x + eta * (score + likelihood) + math.sqrt(2 * eta) * noise.normal(x)
        assert torch.allclose(state.x, x) and state.sigma == pytest.approx(sigma)


def test_the_ablations_of_the_paper_are_settings_of_basis(toy_prior):
    """Without noise and noise levels, ascent ends at the mode of a Gaussian posterior."""
    priors, sigma = gaussians(SHAPE, correlated=True), 0.05
    mixing = mixing_of("mixture")
    m = observation(priors, mixing)
    ascent = Basis(temperature=0, levels=1, steps=3000, sigma_min=sigma, weight=sigma**2 * 50)
    x, _ = run(ascent, priors, mixing, m, 1)
    mode, _ = exact_posterior(priors, mixing, m, 1 / 50, sigma)
    assert torch.allclose(x.flatten(), mode, atol=1e-4)
    annealed = Basis(temperature=0, start="zeros", steps=5)
    m = torch.rand(1, 1, 4, 4, dtype=F64)
    a, b = (run(annealed, [toy_prior] * 2, mixture(), m, 2, seed=s)[0] for s in (1, 2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("tau", [0.0, 0.2])
def test_a_clean_sample_at_temperature_zero_is_the_conditional_mean(tau):
    """For independent Gaussians the closed form is exact: noisy sources and observation."""
    priors, sigma = gaussians(SHAPE, correlated=False), 0.3
    mixing = mixture((1.0, -0.5)).fit(SHAPE).replace(noise=tau)
    noisy = torch.rand(1, 2, *SHAPE, dtype=F64)
    m = torch.rand(1, *SHAPE, dtype=F64)
    problem = Problem(priors, mixing, m, OneStream())
    found = sample_clean(problem, noisy, sigma, 0.0)
    given = []
    for i, prior in enumerate(priors):  # each prior given its noisy source
        precision = 1 / prior.covariances[0].diagonal() + 1 / sigma**2
        total = prior.means[0].flatten() / prior.covariances[0].diagonal()
        mean = (total + noisy[0, i].flatten() / sigma**2) / precision
        given.append(GaussianMixture(mean.view(1, *SHAPE), (1 / precision).diag()[None]))
    mean, _ = exact_posterior(given, mixing, m, tau**2)
    assert torch.allclose(found.flatten(), mean, atol=1e-8)


@pytest.mark.parametrize("sampler", [Ancestral(), Dirac(), Gibbs(), Langevin()], ids=str)
def test_samplers_separate_patterns(toy_prior, sampler):
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    x, _ = run(sampler, [toy_prior] * 2, mixture(), truth.sum(dim=1), 64)
    residual = (x.sum(dim=1) - truth.sum(dim=1)).square().mean(dim=(1, 2, 3)).sqrt()
    assert residual.median() < 0.2
    off = [(x - truth[:, order]).square().mean(dim=(1, 2, 3, 4)) for order in ([0, 1], [1, 0])]
    assert (torch.minimum(*off).sqrt() < 0.15).double().mean() > 0.5


def test_ascent_ends_at_the_mode_of_a_gaussian():
    priors = gaussians(SHAPE, correlated=True)
    mixing = mixing_of("mixture")
    m = observation(priors, mixing)
    problem = Problem(priors, mixing, m, OneStream())
    ascent = Ascent(steps=400, sigma_min=0.01, weight=64.0)
    mean, covariance = exact_posterior(priors, mixing, m)
    for states in (ascent.run(problem), ascent.resume(problem, problem.center(), 0.3)):
        x = list(states)[-1].x
        assert ((x.flatten() - mean).abs() < 0.25 * covariance.diagonal().sqrt() + 0.01).all()
    with pytest.raises(BasisError, match="'basis' cannot start"):
        Basis().resume(problem, problem.center(), 0.3)


def test_dirac_keeps_the_mixture_exactly(toy_prior):
    m = torch.rand(1, 1, 4, 4, dtype=F64)
    x, problem = run(Dirac(steps=5, restarts=2), [toy_prior] * 3, mixture((1, 0.5, 2)), m, 4)
    assert torch.allclose(mixture((1, 0.5, 2))(x), m.expand(4, -1, -1, -1))
    assert (problem.evaluations == 3 * 5 * 3).all()


@pytest.mark.parametrize(
    "mixing",
    [
        grey(channels=1),
        mixture().replace(noise=0.1),
        mixtures([[1, 1], [1, 2]]),
        mixture((1.0, 0.0)),
        mixture().replace(mask=torch.ones(1, 4, 4)),
        mixture().clipped(),
    ],
)
def test_dirac_takes_only_plain_mixtures(toy_prior, mixing):
    m = torch.zeros(1, *mixing.observed_shape((1, 4, 4)), dtype=F64)
    with pytest.raises(BasisError, match="plain mixtures"):
        run(Dirac(), [toy_prior] * mixing.sources, mixing, m, 1)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Gibbs, "steps", 0),
        (Gibbs, "steps", 2.5),
        (Gibbs, "gibbs_fraction", 1.5),
        (Gibbs, "temperature_decay", -0.1),
        (Gibbs, "schedule_power", 0.0),
        (Gibbs, "variance_shrinkage", 1.5),
        (Gibbs, "correlated", 1),
        (Langevin, "rate", 0.0),
        (Langevin, "weight", math.inf),
        (Ancestral, "churn", -1.0),
        (Ascent, "momentum", 1.0),
        (Dirac, "restarts", -1),
        (Basis, "levels", 10**7),
        (Basis, "delta", math.nan),
        (Basis, "start", "ones"),
        (Basis, "sigma_min", -1.0),
    ],
)
def test_settings_are_checked(kind, name, value):
    with pytest.raises(BasisError, match=f"{name} must be"):
        kind(**{name: value})


def test_noise_levels_that_rise_are_rejected(toy_prior):
    m = torch.rand(1, 1, 4, 4, dtype=F64)
    for sampler in (
        Basis(sigma_min=2.0, sigma_max=1.0),
        Gibbs(sigma_max=1.0, sigma_switch=2.0),
        Dirac(sigma_restart=5.0, sigma_max=2.0),
    ):
        with pytest.raises(BasisError, match="must fall"):
            run(sampler, [toy_prior] * 2, mixture(), m, 1)


def test_noise_levels_outside_of_the_priors_range(toy_prior):
    toy_prior.sigma_max = 0.5
    m = torch.rand(1, 1, 4, 4, dtype=F64)
    with pytest.raises(BasisError, match=r"sigma 1 is outside.*0\.5"):
        run(Basis(sigma_max=1.0), [toy_prior] * 2, mixture(), m, 1)
    x, _ = run(Basis(steps=2), [toy_prior] * 2, mixture(), m, 1)  # a default is clamped
    assert torch.isfinite(x).all()


def test_divergence_is_reported(toy_prior):
    m = torch.rand(1, 1, 4, 4, dtype=F64)
    for sampler in (Basis(delta=1e-2, steps=200), Langevin(rate=1e29, steps=40)):
        with pytest.raises(BasisError, match="diverged"):
            run(sampler, [toy_prior] * 2, mixture(), m, 1)


def test_temperature_decay_narrows_the_samples():
    priors = gaussians(SHAPE, correlated=True)
    m = observation(priors, mixing_of("mixture"))
    settings = {"steps": 40, "sigma_max": 0.5, "sigma_switch": 0.05, "sigma_min": 0.05}
    warm, cold = (
        run(Gibbs(**settings, temperature_decay=d), priors, mixing_of("mixture"), m, 500)[0]
        for d in (0.0, 1.0)
    )
    assert cold.std(dim=0).mean() < 0.8 * warm.std(dim=0).mean()


def test_schedules():
    assert geometric(8.0, 1.0, 3, power=2.0) == pytest.approx([8, 8 * 8**-0.25, 1])
    assert geometric(8.0, 1.0, 4) == pytest.approx([8, 4, 2, 1])
    assert geometric(8.0, 1.0, 1) == [1.0]
    sigmas = two_rates(1.0, 0.5, 0.05, 10, 0.8)
    assert sigmas[8] == pytest.approx(0.5) and sigmas == sorted(sigmas, reverse=True)
    for steps in range(1, 6):
        sigmas = two_rates(1.0, 0.5, 0.05, steps, 0.8)
        assert len(sigmas) == steps + 1 and sigmas[0] == 1.0 and sigmas[-1] == pytest.approx(0.05)


def test_langevin_steps_keep_the_variance_of_a_gaussian_at_large_steps():
    """Along the stiff directions of the prior and of the mixing, at a rate of 1."""
    sigma, count, weight = 0.3, 4000, 4.0
    prior = GaussianMixture(torch.zeros(1, 1, 2), torch.tensor([1e-4]))
    m = torch.zeros(count, 1, 2, dtype=F64)
    problem = Problem([prior, prior], mixture((0.5, 0.5)), m, Noise(range(count)))
    move, x = LangevinSteps(problem, 1.0, weight), problem.center()
    for _ in range(12):
        x = move(x, sigma)
    own, gamma2 = 1e-4 + sigma**2, (0.5 * sigma) ** 2 / weight
    # The sum of the sources is observed, multiplied by 0.5; their difference is not.
    total, difference = x.sum(dim=1).var().item(), (x[:, 0] - x[:, 1]).var().item()
    assert total == pytest.approx(1 / (1 / (2 * own) + 0.25 / gamma2), rel=0.05)
    assert difference == pytest.approx(2 * own, rel=0.05)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_langevin_steps_do_not_depend_on_the_scale_of_the_observation(toy_prior, temperature):
    start = torch.rand(3, 2, *toy_prior.shape, generator=torch.Generator().manual_seed(0))
    found = []
    for alpha in (1.0, 0.1):
        mixing = mixture((alpha, alpha))
        m = mixing(torch.full_like(start, 0.4))
        problem = Problem([toy_prior] * 2, mixing, m, Noise(range(3)))
        move = LangevinSteps(problem, 1.0, 4.0, temperature)
        found.append(move(move(start, 0.5), 0.4))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
