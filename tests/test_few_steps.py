"""Few-step samplers against posteriors that are known exactly."""

import math

import pytest
import torch
from test_samplers import OneStream, bimodal, exact_posterior, gaussian_case, run

from basis.errors import BasisError
from basis.mixings.matrix import grey, mixture, mixtures
from basis.priors.gaussian import GaussianMixture
from basis.samplers.ancestral import Ancestral
from basis.samplers.dirac import Dirac
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin, two_rates
from basis.samplers.problem import Problem
from basis.samplers.sampler import geometric
from basis.samplers.steps import sample_clean


def independent_case():
    """Two Gaussian sources with independent pixels, where the alternation alone is exact."""
    g = torch.Generator().manual_seed(5)
    priors = []
    for _ in range(2):
        variances = torch.rand(4, generator=g, dtype=torch.float64) * 0.05 + 0.005
        mean = torch.rand(1, 1, 2, 2, generator=g, dtype=torch.float64)
        priors.append(GaussianMixture(mean, variances.diag()[None]))
    return priors, torch.rand(1, 1, 2, 2, generator=g, dtype=torch.float64) * 1.5


def clean_posterior(priors, alphas, m, tau):
    """Mean and covariance of the clean sources given m."""
    eye = torch.eye(4, dtype=torch.float64)
    prior = torch.block_diag(*(p.covariances[0] for p in priors))
    a = torch.cat([alpha * eye for alpha in alphas], dim=1)
    gain = prior @ a.T @ torch.linalg.inv(a @ prior @ a.T + tau**2 * eye)
    means = torch.cat([p.means[0] for p in priors])
    return means + gain @ (m.flatten() - a @ means), prior - gain @ a @ prior


def check_draws(x, mean, covariance, sigma):
    """Holds draws to a Gaussian with noise of level sigma, up to what their number allows."""
    covariance = covariance + sigma**2 * torch.eye(8, dtype=torch.float64)
    deviation, flat = covariance.diagonal().sqrt(), x.flatten(1)
    assert ((flat.mean(dim=0) - mean).abs() < 5 * deviation / math.sqrt(len(x))).all()
    error = (torch.cov(flat.T) - covariance) / deviation[:, None] / deviation
    assert error.abs().max() < 5 * math.sqrt(2 / len(x))


@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_gibbs_is_exact_for_independent_gaussians(tau):
    priors, m = independent_case()
    alphas, sigma, chains = (1.0, 0.5), 0.1, 20_000
    sampler = Gibbs(steps=60, sigma_max=1.0, sigma_switch=sigma, gibbs_fraction=1.0)
    x, _ = run(sampler, priors, mixture(alphas).replace(noise=tau), m, chains)
    check_draws(x, *clean_posterior(priors, alphas, m, tau), sigma)


@pytest.mark.parametrize("steps", [2, 12])
@pytest.mark.parametrize(("tau", "churn"), [(0.0, 1.0), (0.1, 1.0), (0.0, 3.0)])
def test_ancestral_steps_of_any_size_are_exact_for_independent_gaussians(tau, churn, steps):
    priors, m = independent_case()
    alphas, sigma, chains = (1.0, 0.5), 0.1, 20_000
    # From so much noise that what the first state was made about is forgotten.
    sampler = Ancestral(steps=steps, sigma_max=200.0, sigma_min=sigma, churn=churn)
    x, _ = run(sampler, priors, mixture(alphas).replace(noise=tau), m, chains)
    check_draws(x, *clean_posterior(priors, alphas, m, tau), sigma)


def test_ancestral_steps_to_the_mean_are_too_narrow():
    """Without the variance of the clean signal a long step loses some of the spread."""
    priors, m = independent_case()
    wide, narrow = (
        run(Ancestral(6, 50.0, 0.02, temperature=t), priors, mixture(), m, 4000)[0].std(dim=0)
        for t in (1.0, 0.0)
    )
    assert (narrow < 0.9 * wide).all()


def test_gibbs_is_nearly_exact_for_correlated_gaussians():
    """Pixels that hang together: what the diagonal variance leaves out shrinks with sigma."""
    priors, m = gaussian_case()
    alphas, chains = (1.0, 0.5), 5_000
    mean, covariance = clean_posterior(priors, alphas, m, 0.0)
    deviation = covariance.diagonal().sqrt()
    sampler = Gibbs(steps=600, sigma_max=0.5, sigma_switch=0.03, sigma_min=0.01, gibbs_fraction=0.6)
    x, _ = run(sampler, priors, mixture(alphas), m, chains)
    flat = x.flatten(1)
    assert ((flat.mean(dim=0) - mean).abs() < 0.15 * deviation).all()
    error = (torch.cov(flat.T) - covariance) / deviation[:, None] / deviation
    assert error.abs().max() < 0.2


@pytest.mark.parametrize(
    "sampler",
    [
        Gibbs(steps=200, sigma_max=2.0, sigma_switch=0.1, sigma_min=0.02),
        Langevin(steps=1200, sigma_switch=0.1, sigma_min=0.02, rate=0.1, weight=1.0),
    ],
    ids=["gibbs", "langevin"],
)
def test_mode_weights(sampler):
    """Two ways to explain m = 1: their shares follow the priors' weights, 0.12 to 0.42."""
    priors = [bimodal([0.3, 0.7]), bimodal([0.6, 0.4])]
    m = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    chains = 4000
    x, _ = run(sampler, priors, mixture((1.0, 1.0)), m, chains)
    first_low = (x[:, 0].mean(dim=(1, 2, 3)) < 0.5).double().mean().item()
    exact = 0.12 / 0.54
    # Annealing in finitely many steps freezes the modes a little early; that bias is stated as
    # 0.03.
    assert abs(first_low - exact) < 4 * math.sqrt(exact * (1 - exact) / chains) + 0.03


def test_langevin_has_the_gaussian_posterior():
    priors, m = gaussian_case()
    alphas, sigma, chains, tau = (1.0, 0.5), 0.1, 5_000, 0.1
    sampler = Langevin(
        steps=500,
        sigma_max=0.5,
        sigma_switch=0.12,
        sigma_min=sigma,
        slow_fraction=0.5,
        rate=0.05,
        weight=2.0,
    )
    x, _ = run(sampler, priors, mixture(alphas).replace(noise=tau), m, chains)
    pulled = 0.625 * sigma**2 / 2  # the mean square of the weights is the mixing's gain squared
    mean, precision = exact_posterior(priors, alphas, m, sigma, pulled + tau**2)
    covariance = torch.linalg.inv(precision)
    deviation = covariance.diagonal().sqrt()
    flat = x.flatten(1)
    # The last steps still fall a little.
    assert ((flat.mean(dim=0) - mean).abs() < (5 / math.sqrt(chains) + 0.03) * deviation).all()
    error = (torch.cov(flat.T) - covariance) / deviation[:, None] / deviation
    assert error.abs().max() < 5 * math.sqrt(2 / chains) + 0.04


@pytest.mark.parametrize("tau", [0.0, 0.2])
def test_posterior_denoiser_is_the_conditional_mean(tau):
    """For independent Gaussians the closed form is exact: noisy image and mixture together."""
    priors, m = independent_case()
    alphas, sigma = (1.0, -0.5), 0.3
    noisy = torch.rand(1, 2, 1, 2, 2, dtype=torch.float64)
    problem = Problem(priors, mixture(alphas).replace(noise=tau), m, OneStream(0))
    found = sample_clean(problem, noisy, sigma, 0.0).flatten()
    eye = torch.eye(4, dtype=torch.float64)
    a = torch.cat([alpha * eye for alpha in alphas], dim=1)
    prior = torch.block_diag(*(p.covariances[0] for p in priors))
    both = torch.cat([torch.eye(8, dtype=torch.float64), a])
    spread = torch.block_diag(sigma**2 * torch.eye(8, dtype=torch.float64), tau**2 * eye)
    gain = prior @ both.T @ torch.linalg.inv(both @ prior @ both.T + spread)
    means = torch.cat([p.means[0] for p in priors])
    seen = torch.cat([noisy.flatten(), m.flatten()])
    assert torch.allclose(found, means + gain @ (seen - both @ means), atol=1e-8)


def test_ode_of_a_gaussian_is_the_exact_map():
    """One Gaussian, nothing observed but a masked mixture: the flow scales deviations by a known
    factor.
    """
    prior = GaussianMixture(
        torch.full((1, 1, 1, 2), 0.4, dtype=torch.float64), torch.tensor([0.04])
    )
    mixing = mixture((1.0,)).replace(mask=torch.zeros(1, 1, 2))
    m = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    sampler = PosteriorOde(steps=200, sigma_max=1.0, sigma_min=0.05)
    problem = Problem([prior], mixing, m.expand(3, -1, -1, -1), OneStream(4))
    start = 0.4 + OneStream(4).normal(problem.empty())
    x = [state.x for state in sampler.run(problem)][-1]
    factor = math.sqrt((0.04 + 0.05**2) / (0.04 + 1.0))
    assert torch.allclose(x - 0.4, factor * (start - 0.4), atol=1e-3)
    assert problem.evaluations.max() == 2 * 200 - 1


@pytest.mark.parametrize(
    "sampler",
    [PosteriorOde(), PosteriorSde(), Ancestral(), Dirac(), Gibbs(), Langevin()],
    ids=lambda s: s.name,
)
def test_every_sampler_explains_a_toy_mixture(toy_prior, sampler):
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    x, _ = run(sampler, [toy_prior] * 2, mixture(), truth.sum(dim=1), 64)
    meets = (x.sum(dim=1) - truth.sum(dim=1)).square().mean(dim=(1, 2, 3)).sqrt()
    assert meets.median() < 0.2
    off = [(x - truth[:, order]).square().mean(dim=(1, 2, 3, 4)) for order in ([0, 1], [1, 0])]
    assert (torch.minimum(*off).sqrt() < 0.15).double().mean() > 0.5


def test_dirac_keeps_the_mixture_exactly(toy_prior):
    m = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    x, problem = run(Dirac(steps=5, restarts=2), [toy_prior] * 3, mixture((1, 0.5, 2)), m[:1], 4)
    back = x[:, 0] + 0.5 * x[:, 1] + 2 * x[:, 2]
    assert torch.allclose(back, m[:1].expand(4, -1, -1, -1))
    assert problem.evaluations.max() == 3 * 5 * 3


@pytest.mark.parametrize(
    "mixing",
    [grey(channels=1), mixture().replace(noise=0.1), mixtures([[1, 1], [1, 2]]), mixture((1.0, 0.0)),
     mixture().replace(mask=torch.ones(1, 4, 4))],
)  # fmt: skip
def test_dirac_refuses_what_it_cannot_substitute(toy_prior, mixing):
    priors = [toy_prior] * mixing.sources
    m = torch.zeros(1, *mixing.observed_shape((1, 4, 4)), dtype=torch.float64)
    with pytest.raises(BasisError, match="plain mixtures"):
        run(Dirac(), priors, mixing, m, 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Gibbs(steps=0), "steps must be a number at least 1"),
        (lambda: Gibbs(gibbs_fraction=1.5), "gibbs_fraction"),
        (lambda: Langevin(rate=0.0), "rate must be a number more than 0"),
        (lambda: Langevin(weight=math.inf), "weight"),
        (lambda: Ancestral(churn=-1.0), "churn must be a number at least 0"),
        (lambda: PosteriorOde(sigma_max=-1.0), "sigma_max"),
        (lambda: Dirac(restarts=-1), "restarts must be a number at least 0"),
    ],
)
def test_settings_are_checked(make, says):
    with pytest.raises(BasisError, match=says):
        make()


@pytest.mark.parametrize(
    "sampler", [Gibbs(sigma_max=1.0, sigma_switch=2.0), Dirac(sigma_restart=5.0, sigma_max=2.0)]
)
def test_noise_levels_that_rise_are_refused(toy_prior, sampler):
    m = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    with pytest.raises(BasisError, match="must fall"):
        run(sampler, [toy_prior] * 2, mixture(), m, 1)


def test_defaults_are_in_spreads_of_the_prior_and_clipped_to_what_it_knows():
    """Gaussians of ten times the width get ten times the noise levels; what is given stays."""
    for width, low, high in ((1.0, 1e-4, 1e4), (10.0, 1e-4, 1e4), (1.0, 0.3, 2.0)):
        prior = GaussianMixture(
            torch.zeros(1, 1, 4), torch.tensor([width**2]), sigma_min=low, sigma_max=high
        )
        problem = Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 4), OneStream(0))
        found = problem.noise_levels((None, None, None), (3, 7 / 6, 1 / 6))
        wanted = [min(max(width * s, low), high) for s in (3, 7 / 6, 1 / 6)]
        assert found == pytest.approx(wanted, rel=1e-6)
    assert problem.noise_levels((None, 0.5, None), (3, 1, 1 / 6)) == pytest.approx([2.0, 0.5, 0.3])
    assert problem.noise_levels((0.4, None, None), (3, 1, 1 / 6)) == pytest.approx([0.4, 0.4, 0.3])


def test_cooled_chains_scatter_less():
    priors, m = gaussian_case()
    settings = {"steps": 40, "sigma_max": 0.5, "sigma_switch": 0.05, "sigma_min": 0.05}
    warm, cold = (
        run(Gibbs(**settings, temperature_decay=c), priors, mixture((1.0, 0.5)), m, 500)[0]
        .std(dim=0)
        .mean()
        for c in (0.0, 1.0)
    )
    assert cold < 0.8 * warm
    for wrong in ({"temperature_decay": 1.5}, {"temperature_decay": -0.1}, {"schedule_power": 0.0}):
        with pytest.raises(BasisError, match=next(iter(wrong))):
            Gibbs(**wrong)


def test_schedules():
    assert geometric(8.0, 1.0, 3, power=2.0) == pytest.approx([8, 8 * 8**-0.25, 1])
    assert geometric(8.0, 1.0, 4) == pytest.approx([8, 4, 2, 1])
    assert geometric(8.0, 1.0, 1) == [1.0]
    sigmas = two_rates(1.0, 0.5, 0.05, 10, 0.8)
    assert len(sigmas) == 11 and sigmas[8] == pytest.approx(0.5)
    assert sigmas[0] == 1.0 and sigmas[-1] == pytest.approx(0.05)
    assert sigmas == sorted(sigmas, reverse=True)
    for steps in range(1, 6):
        assert len(two_rates(1.0, 0.5, 0.05, steps, 0.8)) == steps + 1


def test_moments_of_a_gaussian_mixture():
    """The posterior covariance is sigma^2 times the denoiser's Jacobian."""
    g = torch.Generator().manual_seed(0)
    roots = torch.randn(3, 4, 4, generator=g, dtype=torch.float64) * 0.2
    means = torch.rand(3, 1, 2, 2, generator=g, dtype=torch.float64)
    prior = GaussianMixture(means, roots @ roots.mT, torch.tensor([0.5, 0.2, 0.3]))
    x = torch.rand(2, 1, 2, 2, generator=g, dtype=torch.float64)
    sigma = torch.tensor([0.2, 0.5], dtype=torch.float64)
    mean, variance = prior.moments(x, sigma)
    assert torch.allclose(mean, prior.denoise(x, sigma))
    for i in range(2):
        one = x[i : i + 1]
        jacobian = torch.autograd.functional.jacobian(lambda y: prior.denoise(y, sigma[i]), one)  # noqa: B023
        diagonal = jacobian.reshape(4, 4).diagonal() * sigma[i] ** 2
        assert torch.allclose(variance[i].flatten(), diagonal, atol=1e-10)
