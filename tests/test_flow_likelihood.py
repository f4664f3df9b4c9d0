"""log p of score priors along their probability flow, against densities that are known."""

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import FlowLikelihood, with_likelihood
from basis.priors.prior import Prior
from basis.samplers.noise import Noise
from basis.samplers.problem import Problem


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
    for probes, each in ((1, 2), (2, 4), (None, 6)):
        flow = FlowLikelihood(prior, steps=5, probes=probes)
        calls.clear()
        flow.log_prob(torch.rand(1, 1, 3), 0.1)
        assert sum(calls) == flow.log_prob_cost == each * 21 + 1
    problem = Problem([flow, flow], mixture(), torch.zeros(1, 1, 3), Noise([0]))
    problem.log_prob(torch.rand(1, 2, 1, 3), 0.1)
    assert problem.evaluations.max() == 2 * flow.log_prob_cost


def test_score_priors_choose_by_it(toy_prior):
    exact = toy_prior
    bare = hidden(exact)
    assert not bare.has_likelihood
    one, two = with_likelihood([bare, bare])
    assert one is two and with_likelihood([exact]) == [exact]
    m = exact.means.view(4, 1, 4, 4)[[1, 2]].sum(dim=0, keepdim=True)
    by = {"sampler": "gibbs", "steps": 12, "samples": 3, "seed": 3}
    chosen = separate(m, bare, choose="likelihood", **by)
    first = separate(m, bare, **by)
    # The same chains, whichever of two like sources comes first.
    one_order, other = (r.samples.square().sum(dim=2) for r in (chosen, first))
    assert torch.allclose(one_order, other)
    # Ranked by log p, and every one of its evaluations on the account.
    assert chosen.evaluations - first.evaluations == 3 * 2 * one.log_prob_cost
    sources = chosen.samples[0].flatten(0, 1)
    known = exact.log_prob(sources, 1e-3).view(3, 2).sum(dim=1)
    assert known.argmax() == chosen.energies[0].argmin()


def test_mistakes():
    prior = hidden(correlated())
    with pytest.raises(BasisError, match="above 0"):
        FlowLikelihood(prior).log_prob(torch.rand(2, 1, 6), 0.0)
    for wrong in ({"steps": 0}, {"probes": 0}):
        with pytest.raises(BasisError, match="at least 1"):
            FlowLikelihood(prior, **wrong)
