import dataclasses

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.priors.gaussian import GaussianMixture
from basis.samplers.gibbs import Gibbs
from basis.search.ranking import align
from basis.search.uncertainty import central_interval, find_modes


def exact(mean, m, variance=0.04):
    """Posterior of two sources of these means, (2, ...), given their sum: mean, and deviation."""
    return mean + (m - mean.sum(dim=0)) / 2, (variance / 2) ** 0.5


@pytest.mark.parametrize("how", [{"method": "gibbs"}, {"method": "fast"}])
def test_draws_in_either_order_are_put_in_one(bumps, how):
    """With one prior and equal weights either order is as probable; deviations must not see it."""
    pictures = bumps.means.view(2, 1, 2, 2)
    m = pictures.sum(dim=0)[None] + 0.1
    r = separate(m, bumps, samples=64, seed=3, **how)
    assert r.samples.shape == (1, 64, 2, 1, 2, 2)
    for draw in r.samples[0]:
        assert torch.equal(align(draw[None], r.sources, r.exchangeable)[0], draw)
    order = [0, 1] if r.sources[0, 0, 0, 0, 0] > 1.5 else [1, 0]
    mean, deviation = exact(pictures[order], m[0])
    assert torch.allclose(r.mean[0], mean, atol=0.1)
    assert r.std.mean().item() == pytest.approx(deviation, rel=0.15)
    low, high = r.interval(0.9)
    assert (high - low).mean().item() == pytest.approx(2 * 1.645 * deviation, rel=0.2)
    assert len(r.modes[0]) == 1 and r.modes[0][0].weight == 1


@pytest.mark.parametrize("how", [{"method": "gibbs"}, {"method": 700}])
def test_a_prior_per_source_keeps_its_order(bumps, how):
    """Each prior knows one of the pictures: draws come in the order of the priors."""
    pictures = bumps.means.view(2, 1, 2, 2)
    variance = torch.tensor([0.04], dtype=torch.float64)
    priors = [GaussianMixture(p[None], variance) for p in pictures]
    m = pictures.sum(dim=0)[None] + 0.1
    r = separate(m, priors, samples=64, seed=1, **how)
    mean, deviation = exact(pictures, m[0])
    assert torch.allclose(r.mean[0], mean, atol=0.1)
    assert r.std.mean().item() == pytest.approx(deviation, rel=0.15)


def test_alternatives_have_their_weights():
    """A sum that two pairs of pictures explain, one of them three times as probable.

    With pictures a, b, c, d and a + b = c + d, the pair (a, b) has the weight w_a w_b.
    """
    pictures = torch.zeros(4, 1, 2, 2, dtype=torch.float64)
    pictures[0, 0, 0], pictures[1, 0, 1] = 3.0, 3.0
    pictures[2, 0, :, 0], pictures[3, 0, :, 1] = 3.0, 3.0
    weights = torch.tensor([3.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    prior = GaussianMixture(pictures, torch.full((4,), 0.01, dtype=torch.float64), weights)
    m = pictures[:2].sum(dim=0)[None]
    r = separate(m, prior, method=Gibbs(steps=200), samples=96, seed=0)
    (modes,) = r.modes
    assert len(modes) == 2 and sum(mode.weight for mode in modes) == pytest.approx(1)
    # Every draw counted by itself; how well `gibbs` finds the true 0.75 is tested elsewhere.
    first = r.samples[0, :, :, 0, 0, 0] - r.samples[0, :, :, 0, 0, 1]  # 0 of a and b, else 3
    share = (first.abs().amax(dim=1) < 1.5).double().mean().item()
    assert modes[0].weight == pytest.approx(share) and 0.5 < share < 0.9
    for mode, pair in zip(modes, ((0, 1), (2, 3)), strict=True):
        there = align(mode.sources[None], pictures[list(pair)][None], r.exchangeable)[0]
        assert torch.allclose(there, pictures[list(pair)], atol=0.2)
    members = sorted(i for mode in modes for i in mode.members)
    assert members == list(range(96))


def test_one_cloud_is_one_mode():
    g = torch.Generator().manual_seed(0)
    for dims, count in ((1, 40), (2, 40), (200, 8), (200, 40)):
        cloud = torch.randn(count, 1, 1, dims, generator=g)
        assert len(find_modes(cloud, 1.0)) == 1, (dims, count)
        two = torch.cat([cloud, cloud[: count // 2] + 8])
        weights = [mode.weight for mode in find_modes(two, 1.0)]
        assert weights == pytest.approx([2 / 3, 1 / 3])
    assert len(find_modes(torch.zeros(1, 1, 1, 3), 1.0)) == 1
    assert len(find_modes(torch.zeros(5, 1, 1, 3), 1.0)) == 1
    far = torch.tensor([0.0, 5.0]).view(2, 1, 1, 1)
    assert [mode.members for mode in find_modes(far, 1.0)] == [(0,), (1,)]


@pytest.mark.parametrize("count", [5, 19, 40])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_a_further_draw(count, level):
    g = torch.Generator().manual_seed(count)
    draws = torch.randn(20_000, count, generator=g)
    low, high = central_interval(draws, level)
    further = torch.randn(20_000, generator=g)
    covered = ((further >= low) & (further <= high)).float().mean().item()
    # Between order statistics it is straight, which covers a little too much with few draws.
    assert level - 0.015 < covered < level + (0.05 if count < 19 else 0.015)


def test_without_samples_there_are_no_statistics(bumps):
    m = bumps.means.view(2, 1, 2, 2).sum(dim=0)[None]
    for r in (separate(m, bumps, method=m_) for m_ in ("gibbs", "fast")):
        assert r.samples is r.mean is r.std is r.modes is None
        with pytest.raises(BasisError, match="samples=20"):
            r.interval(0.9)
    two = separate(m, bumps, method="gibbs", samples=2)
    with pytest.raises(BasisError, match="between 0 and 1"):
        two.interval(1.0)


def test_draws_leave_the_search_as_it_is(bumps):
    m = bumps.means.view(2, 1, 2, 2).sum(dim=0)[None]
    alone = separate(m, bumps, method="fast")
    beside = separate(m, bumps, method="fast", samples=3)
    assert torch.equal(alone.sources, beside.sources)
    assert (beside.item_evaluations == alone.item_evaluations + 3 * 2 * 99).all()
    assert beside.settings["method"]["posterior"]["chains"] == 3


def test_the_same_weights_loaded_twice_are_exchangeable(tiny_prior, tmp_path):
    from basis.search.ranking import exchangeable
    from basis.store.folder import write_prior
    from basis.store.loading import load_prior

    write_prior(tiny_prior, tmp_path)
    twice = [load_prior(tmp_path), load_prior(tmp_path)]
    assert exchangeable(twice, mixture()).all()
    twice[1].card = dataclasses.replace(twice[1].card, sha256="another")
    assert not exchangeable(twice, mixture())[0, 1]


@pytest.mark.parametrize("method", ["gibbs", "langevin", "fast"])
def test_samples_of_a_narrow_posterior_are_wide_enough(method):
    """A Gaussian random walk in weak noise: its posterior is as narrow as the last noise level."""
    size, noise = 24, 0.16
    steps = torch.tril(torch.ones(size, size, dtype=torch.float64))
    covariance = steps @ steps.T
    prior = GaussianMixture(torch.zeros(1, 1, size, dtype=torch.float64), covariance[None])
    g = torch.Generator().manual_seed(0)
    truth = prior.exact_samples(40, g)
    m = truth + noise * torch.randn(truth.shape, generator=g, dtype=torch.float64)
    eye = torch.eye(size, dtype=torch.float64)
    exact = torch.linalg.inv(torch.linalg.inv(covariance) + eye / noise**2).diagonal().sqrt()
    assert exact.mean() < 0.06 * prior.std
    r = separate(m, prior, (1.0,), noise=noise, method=method, samples=20)
    assert (r.std[:, 0, 0].mean(dim=0) / exact).mean().item() == pytest.approx(0.95, abs=0.1)
    low, high = r.interval(0.9)
    inside = (truth >= low[:, 0]) & (truth <= high[:, 0])
    assert 0.83 < inside.double().mean().item() < 0.95
