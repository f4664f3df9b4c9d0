import math

import pytest
import torch

import basis
from basis._separate import separate
from basis.errors import BasisError
from basis.metrics import psnr, reorder, summarize
from basis.mixings.matrix import grey, mixture
from basis.priors.gaussian import GaussianMixture

QUICK = {"sampler": "basis", "steps": 4, "levels": 4}


@pytest.fixture
def mixed(tiny_prior):
    g = torch.Generator().manual_seed(2)
    return torch.rand(5, 1, 8, 8, generator=g) * 2


def test_result(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, samples=3, seed=4, keep="all", **QUICK)
    assert r.sources.shape == (5, 2, 1, 8, 8) and r.samples.shape == (5, 3, 2, 1, 8, 8)
    assert torch.equal(r.sources, r.samples[:, 0])
    assert not torch.equal(r.samples[:, 0], r.samples[:, 1])
    assert r.sources.min() >= 0 and r.sources.max() <= 1
    assert r.evaluations == 3 * 2 * (4 * 4 + 1)  # samples, sources, steps and the last denoising
    assert len(r.kept) == 4 and all(v.shape == r.samples.shape for v in r.kept.values())
    assert r.seed == 4 and r.settings["sampler"]["steps"] == 4 and r.seconds > 0
    assert r.settings["mixing"]["matrix"] == [[1.0, 1.0]]
    expected = (mixed - r.sources.sum(dim=1)).square().mean(dim=(1, 2, 3)).sqrt()
    assert torch.allclose(r.residual, expected, atol=1e-6)


def test_eight_bit_exact(tiny_prior, mixed):
    """The last projection meets the mixture; without it the last level's noise is left."""
    assert (separate(mixed, tiny_prior, **QUICK).residual < 1 / 255).all()
    assert (separate(mixed, tiny_prior, finish=False, **QUICK).residual > 1 / 255).all()


def test_same_seed_whatever_the_batch(tiny_prior, mixed):
    whole = separate(mixed, tiny_prior, samples=2, seed=1, **QUICK).samples
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = separate(mixed[order], tiny_prior, samples=2, seed=1, **QUICK).samples
    alone = separate(mixed[2:3], tiny_prior, samples=2, seed=1, **QUICK).samples
    chunked = separate(mixed, tiny_prior, samples=2, seed=1, chunk=3, **QUICK).samples
    assert torch.allclose(shuffled, whole[order], atol=1e-4)
    assert torch.allclose(alone, whole[2:3], atol=1e-4)
    assert torch.allclose(chunked, whole, atol=1e-4)
    assert torch.allclose(
        separate(mixed, tiny_prior, seed=1, **QUICK).samples, whole[:, :1], atol=1e-4
    )
    assert not torch.allclose(
        separate(mixed, tiny_prior, seed=2, **QUICK).sources, whole[:, 0], atol=0.05
    )


def test_repeated_mixtures_are_drawn_independently(tiny_prior, mixed):
    r = separate(mixed[:1].expand(2, -1, -1, -1), tiny_prior, **QUICK)
    assert not torch.allclose(r.sources[0], r.sources[1], atol=0.05)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_any_number_of_sources(tiny_prior, mixed, k):
    r = separate(mixed / 2 * k, tiny_prior, alphas=(1.0,) * k, **QUICK)
    assert r.sources.shape == (5, k, 1, 8, 8)
    assert (r.residual < 1 / 255).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_follows_the_mixture(tiny_prior, mixed, dtype):
    r = separate(mixed.to(dtype), tiny_prior, **QUICK)
    assert r.sources.dtype == dtype


def test_toy_problem_is_solved(toy_prior):
    """Any two of four patterns are found by most chains, and by the mean of several."""
    patterns = toy_prior.means.view(4, 1, 4, 4)
    truth = torch.stack([patterns[[1, 2]], patterns[[3, 0]], patterns[[2, 3]]])
    r = separate(mixture((1.0, 0.8))(truth), toy_prior, alphas=(1.0, 0.8), samples=8)
    each = torch.stack([psnr(s, truth, permute=True) for s in r.samples.unbind(1)])
    assert ((each > 25).double().mean(dim=0) > 0.5).all()
    r = separate(mixture((1.0, 1.0))(truth), toy_prior, samples=8)
    assert summarize(psnr(r.mean, truth, permute=True)).mean > 15


def test_means_are_over_sources_that_can_be_exchanged(toy_prior):
    """Sources of one prior and one weight are put in one order, others have their own."""
    patterns = toy_prior.means.view(4, 1, 4, 4)
    truth = patterns[[1, 2]][None]
    equal = separate(truth.sum(dim=1), toy_prior, sampler="gibbs", samples=6)
    assert equal.exchangeable.all()
    chosen = equal.sources[:, None]
    near = (equal.samples - chosen).flatten(2).square().mean(dim=2)
    assert (near <= (equal.samples.flip(2) - chosen).flatten(2).square().mean(dim=2)).all()
    assert torch.equal(equal.mean, equal.samples.mean(dim=1))
    unequal = separate(truth.sum(dim=1), toy_prior, alphas=(1.0, 0.9), sampler="gibbs", samples=2)
    assert torch.equal(unequal.exchangeable, torch.eye(2, dtype=torch.bool))


def test_one_prior_per_source(toy_prior):
    """Each source takes after its own prior, so their order is known."""
    dark = GaussianMixture(torch.full((1, 1, 4, 4), 0.1).double(), torch.tensor([1e-3]))
    bright = GaussianMixture(torch.full((1, 1, 4, 4), 0.8).double(), torch.tensor([1e-3]))
    m = torch.full((2, 1, 4, 4), 0.9, dtype=torch.float64)
    r = separate(m, [dark, bright])
    assert (r.sources[:, 0] < 0.3).all() and (r.sources[:, 1] > 0.6).all()
    swapped = separate(m, [bright, dark])
    assert (swapped.sources[:, 1] < 0.3).all()
    three = separate(m + 0.1, [dark, bright, dark])
    assert (three.sources.mean(dim=(0, 2, 3, 4)) - torch.tensor([0.1, 0.8, 0.1])).abs().max() < 0.1


def test_colourisation_keeps_the_grey(tiny_prior):
    prior = GaussianMixture(
        torch.tensor([0.7, 0.4, 0.1]).view(1, 3, 1, 1).expand(1, 3, 2, 2).double(),
        torch.tensor([0.02]),
    )
    m = torch.full((1, 1, 2, 2), 0.4, dtype=torch.float64)
    r = separate(m, prior, mixing=grey(channels=3))
    assert r.sources.shape == (1, 1, 3, 2, 2) and (r.residual < 1 / 255).all()
    assert r.sources[0, 0, 0].mean() > r.sources[0, 0, 2].mean()


def test_noisy_observation_is_not_met_exactly(toy_prior):
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    g = torch.Generator().manual_seed(0)
    m = truth.sum(dim=1) + 0.1 * torch.randn(1, 1, 4, 4, generator=g, dtype=torch.float64)
    r = separate(m, toy_prior, mixing=mixture().replace(noise=0.1))
    assert 0.03 < r.residual.item() < 0.2
    assert psnr(r.sources, truth, permute=True).item() > 20


def test_progress_counts_every_step(tiny_prior, mixed):
    seen = []
    separate(mixed, tiny_prior, chunk=2, progress=seen.append, **QUICK)
    assert [p.done for p in seen] == list(range(1, 3 * 16 + 1))
    assert {p.total for p in seen} == {48}


def test_kept_levels_are_the_nearest(tiny_prior, mixed):
    r = separate(mixed, tiny_prior, keep=[0.9, 0.2], sampler="basis", levels=3, steps=2)
    assert sorted(r.kept) == pytest.approx([0.1, 1.0])


def test_metrics_match_components():
    truth = torch.rand(4, 3, 1, 5, 5)
    assert torch.equal(reorder(truth[:, [2, 0, 1]], truth), truth)
    off = (truth[:, [1, 2, 0]] * 0.5 + 0.25).clamp(0, 1)
    direct = -10 * (truth * 0.5 + 0.25 - truth).square().mean(dim=(2, 3, 4)).log10().mean(dim=1)
    assert torch.allclose(psnr(off, truth, permute=True), direct, atol=1e-4)
    s = summarize(torch.tensor([1.0, 2.0, 6.0]))
    assert (s.mean, s.median, s.count) == (3.0, 2.0, 3)
    assert s.stderr == pytest.approx(math.sqrt(7) / math.sqrt(3))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mixture": torch.rand(8, 9)}, "has shape"),
        ({"mixture": torch.rand(1, 3, 8, 8)}, r"take \(batch, 1, 8, 8\)"),
        ({"mixture": torch.rand(0, 1, 8, 8)}, "empty"),
        ({"mixture": torch.full((1, 1, 8, 8), math.nan)}, "NaN"),
        ({"mixture": torch.zeros(1, 1, 8, 8, dtype=torch.int64)}, "uint8 .* or floats"),
        ({"sampler": "gibs"}, "unknown sampler 'gibs'"),
        ({"stepz": 3}, "did you mean 'steps'"),
        ({"wait": 3}, "no setting 'wait'"),
        ({"samples": 0}, "at least 1"),
        ({"alphas": (1.0, 1.0), "mixing": mixture()}, "not both"),
        ({"mixing": grey(channels=3)}, "3 channels"),
        ({"prior": []}, "non-empty"),
        ({"keep": "some"}, "'all'"),
        ({"effort": "fast"}, "not both"),
        ({"sampler": None}, "steps, levels goes with a sampler"),
        ({"choose": "best"}, "choose must be one of first, energy"),
    ],
)
def test_refusals(tiny_prior, change, says):
    arguments = {"mixture": torch.rand(1, 1, 8, 8), "prior": tiny_prior, **QUICK, **change}
    with pytest.raises(BasisError, match=says) as caught:
        separate(**arguments)
    assert "\n" not in str(caught.value)


def test_number_of_priors_must_fit(tiny_prior, mixed):
    with pytest.raises(BasisError, match="2 priors for 3 sources"):
        separate(mixed, [tiny_prior, tiny_prior], alphas=(1.0, 1.0, 1.0))
    assert basis.separate is separate
