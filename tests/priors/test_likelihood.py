"""Priors with a likelihood: by automatic differentiation, and by the probability flow."""

import math

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.nn.glow import Glow, GlowConfig
from basis.nn.ladder import Ladder
from basis.nn.variance import VarianceNetwork, variance_config
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import FlowLikelihood, LikelihoodPrior, with_likelihood
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.samplers.gibbs import Gibbs
from basis.samplers.problem import Noise, Problem
from basis.search.plan import Plan, Ranking, Round


class Exact:
    """The density of the toy prior, as a model."""

    def __init__(self, mixture):
        self.mixture = mixture

    def log_prob(self, x, sigma):
        return self.mixture.log_prob(x, sigma)


class Level(torch.nn.Module):
    """A Gaussian of one noise level, without the level as an argument."""

    noise_conditioned = False

    def __init__(self, sigma):
        super().__init__()
        self.variance = 0.04 + sigma**2

    def log_prob(self, x):
        square = (x - 0.5).flatten(1).square().sum(dim=1)
        return -0.5 * (
            square / self.variance + x[0].numel() * math.log(2 * math.pi * self.variance)
        )


def test_score_by_autograd_is_the_exact_score(toy_prior):
    prior = LikelihoodPrior(Exact(toy_prior), (1, 4, 4), 0.001, 10.0, chunk=2)
    x = torch.rand(5, 1, 4, 4, dtype=torch.float64)
    for sigma in (0.1, torch.linspace(0.1, 1, 5, dtype=torch.float64)):
        assert torch.allclose(prior.score(x, sigma), toy_prior.score(x, sigma), atol=1e-9)
        assert torch.allclose(prior.denoise(x, sigma), toy_prior.denoise(x, sigma), atol=1e-9)
        assert torch.allclose(prior.log_prob(x, sigma), toy_prior.log_prob(x, sigma))
    with torch.inference_mode():
        assert torch.allclose(prior.score(x, 0.1), toy_prior.score(x, 0.1), atol=1e-9)


def chosen(prior, m, ranking=None):
    plan = Plan((Round(4, Gibbs(steps=12)),), ranking=Ranking(ranking or "energy"))
    return separate(m, prior, method=plan, samples=4, seed=1)


def test_ladder_takes_the_nearest_level():
    ladder = LikelihoodPrior({s: Level(s) for s in (0.01, 0.1, 1.0)}, (1, 2, 2), 0.01, 1.0)
    x = torch.rand(4, 1, 2, 2)
    sigma = torch.tensor([0.01, 0.05, 0.2, 0.9])
    single = [Level(s).log_prob(x[i : i + 1]) for i, s in enumerate((0.01, 0.1, 0.1, 1.0))]
    assert torch.allclose(ladder.log_prob(x, sigma), torch.cat(single))
    assert torch.allclose(ladder.score(x, 0.1), -(x - 0.5) / (0.04 + 0.01))
    with pytest.raises(BasisError, match="positive noise level"):
        Ladder({0.0: Level(0.0)})
    with pytest.raises(BasisError, match="log_prob"):
        LikelihoodPrior(torch.nn.Identity(), (1, 2, 2), 0.01, 1.0)


def test_ladder_saves_and_loads(tmp_path):
    torch.manual_seed(0)
    config = GlowConfig(size=4, levels=1, depth=1, width=4)
    ladder = Ladder({s: Glow(config) for s in (0.1, 1.0)})
    prior = Prior.from_pretrained(LikelihoodPrior(ladder, (1, 4, 4), 0.1, 1.0).save(tmp_path / "l"))
    x = torch.rand(3, 1, 4, 4)
    s = torch.tensor([0.1, 1.0, 0.9])
    assert torch.equal(prior.log_prob(x, s), ladder.log_prob(x, s))


def test_a_gaussian_model_is_the_gaussian_prior():
    exact = GaussianMixture(torch.full((1, 1, 2, 2), 0.5), torch.tensor([0.04]))
    model = LikelihoodPrior({0.1: Level(0.1)}, (1, 2, 2), 0.1, 0.1)
    x = torch.rand(3, 1, 2, 2)
    assert torch.allclose(model.log_prob(x, 0.1), exact.log_prob(x, 0.1), atol=1e-4)
    assert torch.allclose(model.denoise(x, 0.1), exact.denoise(x, 0.1), atol=1e-5)


def test_a_variance_network_provides_the_variance():
    torch.manual_seed(0)
    model = Level(0.1)
    model.head = VarianceNetwork(variance_config((1, 4, 4)), 0.5, 0.2).requires_grad_(False)
    prior = LikelihoodPrior(model, (1, 4, 4), 0.1, 0.1, chunk=2)
    x = torch.rand(5, 1, 4, 4)
    mean, variance = prior.moments(x, 0.1)
    assert torch.equal(mean, prior.denoise(x, 0.1))
    assert torch.allclose(variance, model.head(x, torch.full((5,), 0.1)))
    # gibbs uses the moments down to the last level, because the gradient is less accurate there.
    assert Tiled(prior, 6, 6)._switch_level == prior._switch_level == 0


def hidden(exact):
    """The same prior, of which only the denoiser is shown."""
    return Prior.from_denoiser(
        exact.denoise,
        exact.shape,
        sigma_min=1e-3,
        sigma_max=1e3,
        value_range=None,
        center=exact.center,
        std=exact.std,
    )


def correlated():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(6, 6, generator=g, dtype=torch.float64)
    mean = torch.randn(1, 1, 6, generator=g, dtype=torch.float64)
    return GaussianMixture(mean, (a @ a.T / 6)[None])


def two_modes():
    means = torch.tensor([[[-1.0, -1.0, 0.0]], [[1.0, 1.0, 0.5]]], dtype=torch.float64)
    return GaussianMixture(means, torch.tensor([0.04, 0.09]), torch.tensor([0.8, 0.2]))


@pytest.mark.parametrize("exact", [correlated(), two_modes()], ids=["Gaussian", "mixture"])
def test_it_is_the_exact_density(exact):
    g = torch.Generator().manual_seed(1)
    x = exact.exact_samples(32, g)
    noise = torch.randn(x.shape, generator=g, dtype=x.dtype)
    flow = FlowLikelihood(hidden(exact), probes=None)
    # Signals whose path runs between two modes ask for more steps: the mean is held, not the worst.
    for sigma, most in ((0.01, 0.03), (0.1, 0.01), (1.0, 0.005)):
        noisy = x + sigma * noise
        assert (flow.log_prob(noisy, sigma) - exact.log_prob(noisy, sigma)).abs().mean() < most
    # A noise level for every signal, and the error of a fourth-order method.
    levels = torch.linspace(0.02, 2.0, len(x), dtype=x.dtype)
    truth = exact.log_prob(x, levels)
    errors = [
        (FlowLikelihood(hidden(exact), probes=None, steps=n).log_prob(x, levels) - truth)
        .abs()
        .max()
        for n in (8, 16)
    ]
    assert errors[1] < errors[0] / 8


def test_probes_are_right_on_average_and_cancel_in_comparisons():
    exact = correlated()
    x = exact.exact_samples(16, torch.Generator().manual_seed(2))
    truth = exact.log_prob(x, 0.1)
    few = [FlowLikelihood(hidden(exact), seed=s).log_prob(x, 0.1) - truth for s in range(16)]
    errors = torch.stack(few)  # one for every seed and signal
    assert errors.mean(dim=0).abs().max() < 0.5 < errors.abs().max()
    assert errors.std(dim=1).max() < 0.1 * errors.abs().max()


def test_what_it_costs_is_counted():
    calls = []

    def denoise(x, sigma):
        calls.append(len(x))
        return x / (1 + sigma.view(-1, 1, 1) ** 2)

    prior = Prior.from_denoiser(denoise, (1, 3), sigma_min=0.01, sigma_max=10.0)
    prior.denoise(torch.rand(1, 1, 3), 0.1)  # the first call has another one before it
    for probes, each in ((1, 2), (2, 4), (None, 6)):
        flow = FlowLikelihood(prior, steps=5, probes=probes)
        calls.clear()
        flow.log_prob(torch.rand(1, 1, 3), 0.1)
        assert sum(calls) == flow.log_prob_evaluations == each * 21 + 1
    problem = Problem([flow, flow], mixture(), torch.zeros(1, 1, 3), Noise([0]))
    problem.log_prob(torch.rand(1, 2, 1, 3), 0.1)
    assert problem.evaluations.max() == 2 * flow.log_prob_evaluations


def test_score_priors_are_ranked_by_it(toy_prior):
    bare = hidden(toy_prior)
    assert not bare.has_likelihood
    one, two = with_likelihood([bare, bare])
    assert one is two and with_likelihood([toy_prior]) == [toy_prior]
    m = toy_prior.means.view(4, 1, 4, 4)[[1, 2]].sum(dim=0, keepdim=True)
    ranked = chosen(bare, m, "likelihood")
    known = toy_prior.log_prob(ranked.samples[0].flatten(0, 1), 1e-3).view(4, 2).sum(dim=1)
    assert ranked.sources.isfinite().all() and known.isfinite().all()


def test_arguments_of_the_flow_are_checked():
    prior = hidden(correlated())
    with pytest.raises(BasisError, match="above 0"):
        FlowLikelihood(prior).log_prob(torch.rand(2, 1, 6), 0.0)
    for wrong in ({"steps": 0}, {"probes": 0}):
        with pytest.raises(BasisError, match="at least 1"):
            FlowLikelihood(prior, **wrong)
