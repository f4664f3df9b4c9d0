"""Choosing among samples, and the search behind an effort."""

import math
from dataclasses import replace

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.metrics import psnr
from basis.mixings.matrix import grey, mixture
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.samplers.ascent import Ascent
from basis.samplers.dirac import Dirac
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin
from basis.samplers.noise import Noise
from basis.samplers.problem import Problem
from basis.search.plan import Plan, Round, plan_for
from basis.search.ranking import ORDER, Ranking, align, by_prior, needs_order
from basis.settings import EFFORTS
from basis.training.variance import fit_variance


@pytest.fixture
def mixed(tiny_prior):
    g = torch.Generator().manual_seed(2)
    return torch.rand(5, 1, 8, 8, generator=g) * 2


@pytest.fixture
def shapes(toy_prior):
    """Every pair of the toy prior's pictures, and their mixtures."""
    pictures = toy_prior.means.view(4, 1, 4, 4)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    truth = torch.stack([pictures[list(pair)] for pair in pairs])
    return truth, truth.sum(dim=1)


def test_the_energy_finds_the_probable_candidate(toy_prior):
    """A picture of the prior's own against mixtures of two of them, at equal noise."""
    pictures = toy_prior.means.view(4, 1, 4, 4)
    blur = (pictures[[1, 2]] + pictures[[2, 3]]) / 2
    candidates = torch.stack([blur, pictures[[1, 2]], blur.flip(0)])[None]
    problem = Problem([toy_prior] * 2, mixture(), torch.zeros(1, 1, 4, 4), Noise([0]))
    energies = Ranking()(problem, candidates, [7])
    assert energies.argmin().item() == 1
    assert problem.evaluations.max() == 2 * Ranking().calls(3)
    same = Ranking()(problem, candidates[:, [1, 1]], [7])
    assert same[0, 0] == same[0, 1]  # shared noise: equal candidates have equal energy
    assert Ranking("likelihood")(problem, candidates, [7]).argmin().item() == 1
    assert Ranking("both")(problem, candidates, [7]).argmin().item() == 1
    assert not Ranking("first")(problem, candidates, [7]).any()


def test_the_energy_is_in_nats():
    """For a Gaussian the integral over all noise levels is known: differences of energy are those
    of -log p.
    """
    prior = GaussianMixture(torch.zeros(1, 1, 2, 2, dtype=torch.float64), torch.tensor([0.25]))
    x = torch.zeros(1, 2, 1, 1, 2, 2, dtype=torch.float64)
    x[0, 1] = 0.7
    sigmas = tuple(0.005 * 1.25**i for i in range(48))
    problem = Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 2, 2), Noise([0]))
    found = Ranking(levels=tuple(s / prior.std for s in sigmas), draws=200)(problem, x, [3])
    exact = -prior.log_prob(x[0, :, 0], 1e-4)
    assert (found[0, 1] - found[0, 0]).item() == pytest.approx(
        (exact[1] - exact[0]).item(), rel=0.05
    )


def test_choice_among_samples(toy_prior, shapes):
    # Sixteen draws of each, so that the gain is no accident of a seed.
    truth, m = (x.repeat(16, *[1] * (x.ndim - 1)) for x in shapes)
    draw = {"sampler": "gibbs", "steps": 6, "sigma_max": 0.4, "samples": 6, "seed": 1}
    first = separate(m, toy_prior, **draw)
    best = separate(m, toy_prior, choose="energy", **draw)
    # The same draws, each in the order of what was chosen.
    again = [align(x, first.sources, first.exchangeable) for x in best.samples.unbind(1)]
    assert torch.equal(first.samples, torch.stack(again, dim=1))
    assert torch.equal(first.sources, first.samples[:, 0])
    chosen = best.samples[torch.arange(len(m)), best.energies.argmin(dim=1)]
    assert torch.equal(best.sources, chosen)
    assert (
        psnr(best.sources, truth, permute=True).mean()
        > psnr(first.sources, truth, permute=True).mean() + 1
    )
    assert best.evaluations == first.evaluations + 2 * Ranking().calls(6)


@pytest.mark.parametrize("effort", [*EFFORTS, 40, 500, 5000])
@pytest.mark.parametrize("sources", [1, 2, 3])
@pytest.mark.parametrize("ordered", [False, True])
def test_plans_keep_to_their_budget(effort, sources, ordered):
    plan = plan_for(effort, sources, ordered=ordered)
    limit = EFFORTS[effort] * sources if isinstance(effort, str) else effort
    assert 0.85 * limit - 2 * sources <= plan.calls(sources) * sources <= limit


def test_named_efforts():
    assert EFFORTS["fast"] * 2 <= 200 and EFFORTS["best"] * 2 <= 2000
    with pytest.raises(BasisError, match="fast, balanced, best or a number"):
        plan_for("most", 2)
    with pytest.raises(BasisError, match="never ends: give at most 10,000,000"):
        plan_for(10**24)
    with pytest.raises(BasisError, match="too small: give at least 8 for 2"):
        plan_for(3, 2)


@pytest.mark.parametrize("effort", ["fast", 700])
def test_efforts_separate_within_their_budget(toy_prior, shapes, effort):
    truth, m = shapes
    r = separate(m, toy_prior, effort=effort, seed=2)
    assert r.spent.max() <= (200 if effort == "fast" else effort)
    assert r.evaluations == math.ceil(r.spent.double().mean().item())
    assert (r.residual < 1 / 255).all()
    assert psnr(r.sources, truth, permute=True).median() > 25
    assert r.settings["sampler"]["name"] == "search"


def test_certain_mixtures_stop_early(toy_prior, shapes):
    """One picture over nothing has one explanation; two strokes that could be exchanged have
    several.
    """
    _, m = shapes
    easy = torch.zeros_like(m[:1])
    r = separate(torch.cat([m, easy]), toy_prior, effort=2000)
    assert r.spent[-1] < 2000 and r.spent.max() <= 2000
    assert r.spent[-1] == r.spent.min()


def test_same_search_whatever_the_batch(tiny_prior, mixed):
    plan = {"effort": 700, "seed": 1}
    whole = separate(mixed, tiny_prior, **plan)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = separate(mixed[order], tiny_prior, chunk=16, **plan)
    alone = separate(mixed[2:3], tiny_prior, **plan)
    assert torch.allclose(shuffled.sources, whole.sources[order], atol=1e-3)
    assert torch.allclose(alone.sources, whole.sources[2:3], atol=1e-3)
    assert torch.equal(shuffled.spent, whole.spent[order])


def test_search_reports_progress_to_the_end(tiny_prior, mixed):
    seen = []
    separate(mixed, tiny_prior, effort=700, chunk=16, progress=seen.append)
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total
    assert len({p.total for p in seen}) == 1


def test_samples_set_the_number_of_chains(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, effort="fast", samples=3, choose="first")
    assert r.samples.shape[1] == 3 and not r.energies.any()
    assert r.mean.shape == r.sources.shape


def test_an_effort_may_go_into_one_draw(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, effort="fast", choose="draw")
    assert r.samples.shape[1] == 1 and torch.equal(r.sources, r.samples[:, 0])
    assert r.evaluations == 2 * (96 + 1)  # three of each more where a verdict can be given
    same = Gibbs(steps=96, schedule_power=1.5, temperature_decay=45 / 96, variance_shrinkage=0.7)
    again = separate(mixed, tiny_prior, sampler=same)
    assert torch.equal(r.sources, again.sources) and again.evaluations == r.evaluations
    assert torch.equal(separate(mixed, tiny_prior, sampler=same, choose="draw").sources, r.sources)


def test_search_takes_any_mixing(toy_prior):
    m = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    masked = (
        mixture().replace(mask=(torch.arange(16).view(1, 4, 4) % 2).double()).replace(noise=0.05)
    )
    r = separate(m, toy_prior, mixing=masked, effort="fast")
    assert torch.isfinite(r.sources).all() and r.sources.shape == (1, 2, 1, 4, 4)
    colour = GaussianMixture(torch.full((1, 3, 2, 2), 0.4), torch.tensor([0.02]))
    r = separate(torch.full((1, 1, 2, 2), 0.4), colour, mixing=grey(channels=3), effort=300)
    assert (r.residual < 1 / 255).all()


def test_sources_of_different_priors_keep_their_places(toy_prior):
    """A polish must not exchange sources that have priors of their own."""
    pictures = toy_prior.means.view(4, 1, 4, 4)
    low = GaussianMixture(pictures[:2], torch.full((2,), 1e-3))
    high = GaussianMixture(pictures[2:], torch.full((2,), 1e-3))
    truth = pictures[[1, 2]][None]
    for priors, order in (([low, high], [0, 1]), ([high, low], [1, 0])):
        r = separate(truth.sum(dim=1), priors, effort=700)
        assert (r.sources - truth[:, order]).square().mean() < 0.01


@pytest.mark.parametrize("k", [2, 3])
def test_sources_are_put_in_the_order_that_their_priors_prefer(toy_prior, k):
    pictures = toy_prior.means.view(4, 1, 1, 4, 4)
    priors = [GaussianMixture(p, torch.tensor([1e-2])) for p in pictures[:k]]
    truth = pictures[None, :k, 0]
    turned = truth.roll(1, dims=1)
    for alphas, found in (((1.0,) * k, truth), ((0.5, *(1.0,) * (k - 1)), None)):
        mixing = mixture(alphas)
        assert needs_order(priors, mixing) == (found is not None or k > 2)
        problem = Problem(priors, mixing, mixing(truth), Noise([0]))
        placed = by_prior(problem, turned, [0])
        if found is None:  # the source with a weight of its own stays where it is
            assert torch.equal(placed[:, 0], turned[:, 0])
        else:
            assert torch.equal(placed, found)
        assert problem.evaluations.max() == k * ORDER.calls(k)
    assert not needs_order([priors[0]] * k, mixture((1.0,) * k))


def test_an_effort_with_a_prior_for_each_keeps_to_its_budget(toy_prior):
    pictures = toy_prior.means.view(4, 1, 1, 4, 4)
    priors = [GaussianMixture(p, torch.tensor([1e-2])) for p in pictures[1:3]]
    m = pictures[1:3, 0].sum(dim=0, keepdim=True)
    r = separate(m, priors, effort="balanced")
    assert r.spent.max() <= 600 and r.settings["sampler"]["order"] is True
    assert (r.sources - pictures[None, 1:3, 0]).abs().max() < 0.3


def test_plan_settings_are_plain_data():
    import json

    plan = Plan(
        (Round(2, Gibbs(steps=3)), Round(4, Gibbs(steps=5), 2.0)), Round(1, Gibbs(steps=1), 0.7)
    )
    record = json.loads(json.dumps(plan.settings()))
    assert record["rounds"][1]["start"] == 2.0 and record["rounds"][1]["sampler"]["steps"] == 5
    assert plan.widest == 4
    assert plan.calls() == 2 * 4 + 2 * 6 + 4 * 6 + 5 * 6 + 2 + 3


def test_variance_head_learns_the_error():
    """Images that are one of two grey levels: the head must know the error to be large where they
    are in doubt.
    """
    torch.manual_seed(0)
    images = (torch.randint(0, 2, (256, 1, 1, 1)) * 255).expand(-1, 1, 8, 8).clone()
    images[:, :, :, 4:] = 0  # the right half is always black
    images = images.to(torch.uint8)
    network = UNet(UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16))
    denoiser = Denoiser(network, 0.25, 0.43).eval()
    before = {n: p.clone() for n, p in denoiser.named_parameters()}
    losses = fit_variance(
        denoiser, images, count=20_000, batch=64, sigma_min=0.05, sigma_max=2.0, progress=False
    )
    assert sum(losses[-20:]) < sum(losses[:20])
    for name, p in before.items():
        assert torch.equal(denoiser.state_dict()[name], p)
    prior = DenoiserPrior(denoiser, (1, 8, 8), 0.05, 2.0)
    clean = images.float() / 255
    g = torch.Generator().manual_seed(1)
    for sigma in (0.2, 1.0):
        noisy = clean + sigma * torch.randn(clean.shape, generator=g)
        mean, variance = prior.moments(noisy, sigma)
        assert torch.equal(mean, prior.denoise(noisy, sigma))
        # Standardised errors of both halves have variance one, within what so short a fit can do.
        for half in (slice(0, 4), slice(4, 8)):
            z2 = ((clean - mean).square() / variance)[..., half].mean().item()
            assert 0.6 < z2 < 1.6


def test_moments_without_a_head():
    network = UNet(UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16))
    x = torch.rand(3, 1, 8, 8)
    known = DenoiserPrior(
        Denoiser(network, 0.2, 0.4), (1, 8, 8), 0.01, 2.0, errors={0.1: 0.1, 1.0: 0.01}
    )
    for sigma, share in ((0.1, 0.1), (math.sqrt(0.1), math.sqrt(0.001)), (2.0, 0.01), (0.01, 0.1)):
        _, variance = known.moments(x, sigma)
        assert variance.shape == x.shape
        assert torch.allclose(variance, torch.tensor(share * sigma**2), rtol=1e-4)
    unknown = DenoiserPrior(Denoiser(network, 0.2, 0.4), (1, 8, 8), 0.01, 2.0)
    _, variance = unknown.moments(x, 0.3)
    assert torch.allclose(variance, torch.tensor(0.045))


def test_a_plan_of_ones_own(toy_prior, shapes):
    """Any samplers in any rounds; evaluations are those that the plan announces."""
    truth, m = shapes
    plan = Plan(
        (Round(3, Langevin(steps=7)), Round(2, Gibbs(steps=4), start=1.5)),
        polish=Round(2, Ascent(steps=3), start=1.0),
        ranking=Ranking("energy", levels=(0.5,), draws=1),
        certain=0.0,
    )
    r = separate(m, toy_prior, effort=plan)
    assert r.samples.shape[1] == 3
    assert (r.spent == 2 * plan.calls(2)).all()
    assert (r.residual < 1 / 255).all() and r.sources.shape == truth.shape
    more = separate(m, toy_prior, effort=plan, samples=5)
    assert more.samples.shape[1] == 5


def test_plans_that_cannot_run_are_refused(toy_prior, shapes):
    _, m = shapes
    for make, says in [
        (lambda: Plan(()), "at least one round"),
        (lambda: Plan((Round(1, Gibbs(), start=1.0),)), "starts from nothing"),
        (lambda: Plan((Round(1, Gibbs()), Round(1, Gibbs()))), "need a start"),
        (lambda: Round(0, Gibbs()), "chains must be at least 1"),
        (lambda: Round(1, "gibbs"), "a round takes a sampler"),
        (lambda: Ranking(levels=()), "positive noise levels"),
        (lambda: plan_for(3.5), "whole number of evaluations or a Plan"),
    ]:
        with pytest.raises(BasisError, match=says):
            make()
    late = Plan((Round(1, Gibbs(steps=2)),), polish=Round(1, Dirac(), start=1.0))
    with pytest.raises(BasisError, match="cannot start from an earlier answer"):
        separate(m, toy_prior, effort=late)


def test_a_polish_that_blows_up_leaves_the_winner():
    class Wild(GaussianMixture):
        """Sound above half a spread; below it, nothing that can be used."""

        def denoise(self, x, sigma):
            answer = super().denoise(x, sigma)
            return (
                answer * 1e30 if float(torch.as_tensor(sigma).max()) < self.spread / 2 else answer
            )

    means, variances = torch.rand(2, 1, 3, 3, dtype=torch.float64), torch.tensor([0.01, 0.01])
    observed = torch.rand(4, 1, 3, 3, dtype=torch.float64) + 0.5
    wild = separate(observed, Wild(means, variances.double()), effort="fast")
    assert torch.isfinite(wild.sources).all()
    plan = plan_for("fast")
    sound = GaussianMixture(means, variances.double())
    bare = separate(observed, sound, effort=replace(plan, polish=None))
    torch.testing.assert_close(wild.sources, bare.sources)
