import math
from dataclasses import replace

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.metrics import psnr
from basis.mixings.matrix import grey, mixture
from basis.priors.gaussian import GaussianMixture
from basis.samplers.ascent import Ascent
from basis.samplers.dirac import Dirac
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin
from basis.samplers.problem import Noise, Problem
from basis.search.plan import Plan, Round, plan_for
from basis.search.ranking import ORDER, Ranking, align, by_prior, needs_order
from basis.settings import METHODS


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
    assert problem.evaluations.max() == 2 * Ranking().evaluations(3)
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
    found = Ranking(levels=tuple(s / prior.std for s in sigmas), noises=200)(problem, x, [3])
    exact = -prior.log_prob(x[0, :, 0], 1e-4)
    assert (found[0, 1] - found[0, 0]).item() == pytest.approx(
        (exact[1] - exact[0]).item(), rel=0.05
    )


def test_ranking_by_energy(toy_prior, shapes):
    # Sixteen draws of each, so that the gain is no accident of a seed.
    truth, m = (x.repeat(16, *[1] * (x.ndim - 1)) for x in shapes)
    arguments = {"method": Gibbs(steps=6, sigma_max=0.4), "samples": 6, "seed": 1}
    first = separate(m, toy_prior, estimate="sample", **arguments)
    best = separate(m, toy_prior, **arguments)
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
    assert best.evaluations == first.evaluations + 2 * Ranking().evaluations(6)


@pytest.mark.parametrize("method", [*METHODS, 40, 500, 5000])
@pytest.mark.parametrize("sources", [1, 2, 3])
@pytest.mark.parametrize("ordered", [False, True])
def test_plans_keep_to_their_budget(method, sources, ordered):
    plan = plan_for(method, sources, ordered=ordered)
    limit = METHODS[method] * sources if isinstance(method, str) else method
    assert 0.85 * limit - 2 * sources <= plan.evaluations(sources) * sources <= limit


def test_named_methods():
    assert METHODS["fast"] * 2 <= 200 and METHODS["best"] * 2 <= 2000
    with pytest.raises(BasisError, match="most"):
        plan_for("most", 2)
    with pytest.raises(BasisError, match="10,000,000"):
        plan_for(10**24)
    with pytest.raises(BasisError, match="at least 8"):
        plan_for(3, 2)


@pytest.mark.parametrize("method", ["fast", 700])
def test_methods_separate_within_their_budget(toy_prior, shapes, method):
    truth, m = shapes
    r = separate(m, toy_prior, method=method, seed=2)
    assert r.item_evaluations.max() <= (200 if method == "fast" else method)
    assert r.evaluations == math.ceil(r.item_evaluations.double().mean().item())
    assert (r.residual < 1 / 255).all()
    assert psnr(r.sources, truth, permute=True).median() > 25
    assert r.settings["method"]["name"] == "search"


def test_certain_mixtures_stop_early(toy_prior, shapes):
    """One picture over nothing has one explanation; two strokes that could be exchanged have
    several.
    """
    _, m = shapes
    easy = torch.zeros_like(m[:1])
    r = separate(torch.cat([m, easy]), toy_prior, method=2000)
    assert r.item_evaluations[-1] < 2000 and r.item_evaluations.max() <= 2000
    assert r.item_evaluations[-1] == r.item_evaluations.min()


def test_search_reports_progress_to_the_end(tiny_prior, mixed):
    seen = []
    separate(mixed, tiny_prior, method=700, batch_size=16, progress=seen.append)
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total
    assert len({p.total for p in seen}) == 1


def test_samples_are_drawn_in_addition_to_the_search(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, method="fast", samples=3)
    assert r.samples.shape[1] == 3 and r.mean.shape == r.sources.shape
    assert separate(mixed, tiny_prior, method="fast").samples is None


def test_all_evaluations_may_go_into_one_sample(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, method="fast", estimate="sample")
    assert r.evaluations == 2 * (96 + 1)  # three more if there is a plausibility
    same = Gibbs(steps=96, schedule_power=1.5, temperature_decay=45 / 96, variance_shrinkage=0.7)
    again = separate(mixed, tiny_prior, method=same)
    assert torch.equal(r.sources, again.sources) and again.evaluations == r.evaluations


def test_the_mean_of_chains(bumps):
    """The mean of a Gaussian posterior, which single chains scatter about."""
    m = bumps.means.view(2, 1, 2, 2).sum(dim=0)[None] + 0.1
    r = separate(m, bumps, method="fast", estimate="mean")
    assert (r.sources.sum(dim=1) - m).abs().max() < 1e-3
    assert (r.sources.amax() - 3.05).abs() < 0.1


def test_search_takes_any_mixing(toy_prior):
    m = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    masked = (
        mixture().replace(mask=(torch.arange(16).view(1, 4, 4) % 2).double()).replace(noise=0.05)
    )
    r = separate(m, toy_prior, mixing=masked, method="fast")
    assert torch.isfinite(r.sources).all() and r.sources.shape == (1, 2, 1, 4, 4)
    colour = GaussianMixture(torch.full((1, 3, 2, 2), 0.4), torch.tensor([0.02]))
    r = separate(torch.full((1, 1, 2, 2), 0.4), colour, mixing=grey(channels=3), method=300)
    assert (r.residual < 1 / 255).all()


def test_sources_of_different_priors_keep_their_places(toy_prior):
    """A polish must not exchange sources that have priors of their own."""
    pictures = toy_prior.means.view(4, 1, 4, 4)
    low = GaussianMixture(pictures[:2], torch.full((2,), 1e-3))
    high = GaussianMixture(pictures[2:], torch.full((2,), 1e-3))
    truth = pictures[[1, 2]][None]
    for priors, order in (([low, high], [0, 1]), ([high, low], [1, 0])):
        r = separate(truth.sum(dim=1), priors, method=700)
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
        assert problem.evaluations.max() == k * ORDER.evaluations(k)
    assert not needs_order([priors[0]] * k, mixture((1.0,) * k))


def test_an_method_with_a_prior_for_each_keeps_to_its_budget(toy_prior):
    pictures = toy_prior.means.view(4, 1, 1, 4, 4)
    priors = [GaussianMixture(p, torch.tensor([1e-2])) for p in pictures[1:3]]
    m = pictures[1:3, 0].sum(dim=0, keepdim=True)
    r = separate(m, priors, method="balanced")
    assert r.item_evaluations.max() <= 600 and r.settings["method"]["order"] is True
    assert (r.sources - pictures[None, 1:3, 0]).abs().max() < 0.3


def test_plan_settings_are_plain_data():
    import json

    plan = Plan(
        (Round(2, Gibbs(steps=3)), Round(4, Gibbs(steps=5), 2.0)), Round(1, Gibbs(steps=1), 0.7)
    )
    record = json.loads(json.dumps(plan.settings()))
    assert record["rounds"][1]["start"] == 2.0 and record["rounds"][1]["sampler"]["steps"] == 5
    assert plan.widest == 4
    assert plan.evaluations() == 2 * 4 + 2 * 6 + 4 * 6 + 5 * 6 + 2 + 3


def test_a_plan_of_ones_own(toy_prior, shapes):
    """Any samplers in any rounds; evaluations are those that the plan announces."""
    truth, m = shapes
    plan = Plan(
        (Round(3, Langevin(steps=7)), Round(2, Gibbs(steps=4), start=1.5)),
        refine=Round(2, Ascent(steps=3), start=1.0),
        ranking=Ranking("energy", levels=(0.5,), noises=1),
        agreement=0.0,
    )
    r = separate(m, toy_prior, method=plan)
    assert r.samples is None
    assert (r.item_evaluations == 2 * plan.evaluations(2)).all()
    assert (r.residual < 1 / 255).all() and r.sources.shape == truth.shape
    more = separate(m, toy_prior, method=plan, samples=5)
    assert more.samples.shape[1] == 5


def test_plans_that_cannot_run_are_refused(toy_prior, shapes):
    _, m = shapes
    for make, says in [
        (lambda: Plan(()), "at least one round"),
        (lambda: Plan((Round(1, Gibbs(), start=1.0),)), "starts from noise"),
        (lambda: Plan((Round(1, Gibbs()), Round(1, Gibbs()))), "need a start"),
        (lambda: Round(0, Gibbs()), "chains must be at least 1"),
        (lambda: Round(1, "gibbs"), "must be a Sampler"),
        (lambda: Ranking(levels=()), "positive noise levels"),
        (lambda: plan_for(3.5), "3.5"),
    ]:
        with pytest.raises(BasisError, match=says):
            make()
    late = Plan((Round(1, Gibbs(steps=2)),), refine=Round(1, Dirac(), start=1.0))
    with pytest.raises(BasisError, match="dirac"):
        separate(m, toy_prior, method=late)


def test_a_polish_that_blows_up_leaves_the_winner():
    class Wild(GaussianMixture):
        """Sound above half a spread; below it, nothing that can be used."""

        def denoise(self, x, sigma):
            answer = super().denoise(x, sigma)
            return answer * 1e30 if float(torch.as_tensor(sigma).max()) < self.std / 2 else answer

    means, variances = torch.rand(2, 1, 3, 3, dtype=torch.float64), torch.tensor([0.01, 0.01])
    observed = torch.rand(4, 1, 3, 3, dtype=torch.float64) + 0.5
    wild = separate(observed, Wild(means, variances.double()), method="fast")
    assert torch.isfinite(wild.sources).all()
    plan = plan_for("fast")
    sound = GaussianMixture(means, variances.double())
    bare = separate(observed, sound, method=replace(plan, refine=None))
    torch.testing.assert_close(wild.sources, bare.sources)
