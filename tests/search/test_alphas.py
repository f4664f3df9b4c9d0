import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.mixings.per_item import PerItemMixing
from basis.priors.card import LIKELY
from basis.priors.gaussian import GaussianMixture


@pytest.fixture
def patterns():
    """Four pictures of 36 values that differ in about half of them."""
    g = torch.Generator().manual_seed(0)
    return torch.rand(4, 1, 6, 6, generator=g).round() * 0.8 + 0.1


@pytest.fixture
def prior(patterns):
    return GaussianMixture(patterns, torch.full((4,), 0.002), value_range=(0.0, 1.0))


@pytest.fixture
def pairs(patterns):
    truth = patterns[torch.tensor([[0, 1], [2, 3], [1, 2]])]
    weights = torch.tensor([[0.7, 0.3], [0.55, 0.45], [0.65, 0.4]]).double()
    return truth, weights, PerItemMixing(weights)(truth)


def test_unknown_weights_are_found(prior, pairs):
    truth, weights, m = pairs
    r = separate(m, prior, alphas="unknown", sources=2, method="fast")
    assert r.alphas.shape == (3, 2) and r.identifiable.all()
    assert (r.alphas - weights).abs().max() < 0.02
    assert r.sources.shape == truth.shape and (r.sources - truth).abs().mean() < 0.05
    assert (r.residual < 1 / 255).all() and (r.item_evaluations > 200).all()
    assert (r.plausibility >= LIKELY).all()
    # Without the estimate the same mixtures have unlikely sources.
    given = separate(m, prior, alphas=(0.5, 0.5), method="fast")
    assert (given.plausibility[[0, 2]] < LIKELY).all()


def test_some_of_the_weights(prior, pairs):
    _, _, m = pairs
    r = separate(m[:1], prior, alphas=(None, 0.3), method="fast")
    assert r.alphas[0, 1] == 0.3 and r.alphas[0, 0].item() == pytest.approx(0.7, abs=0.02)
    alone = separate(m[:1], prior, alphas=(None, 0.3), method="fast", seed=0)
    assert torch.equal(alone.sources, r.sources)


def test_a_prior_per_source_has_its_weight(patterns, pairs):
    truth, _, m = pairs
    own = [
        GaussianMixture(p[None], torch.tensor([0.002]), value_range=(0, 1)) for p in patterns[:2]
    ]
    r = separate(m[:1], own[::-1], alphas="unknown", method="fast")
    assert r.alphas[0].tolist() == pytest.approx([0.3, 0.7], abs=0.02)
    assert torch.allclose(r.sources[0], truth[0].flip(0), atol=0.1)


def test_weights_of_sources_of_any_scale_cannot_be_known():
    free = GaussianMixture(torch.zeros(1, 1, 6, 6), torch.tensor([1.0]))
    r = separate(torch.randn(2, 1, 6, 6), free, alphas="unknown", sources=2, method="fast")
    assert not r.identifiable.any()
    assert all("identifiable" in line for line in r.warnings)


def test_the_number_of_sources_is_found(prior, patterns):
    m = torch.stack(
        [patterns[0], patterns[:2].sum(dim=0), patterns[[0, 2, 3]].sum(dim=0), patterns.sum(dim=0)]
    )
    r = separate(m, prior, sources="unknown", method="fast")
    assert r.counts.tolist() == [1, 2, 3, 4]
    assert r.sources.shape == (4, 4, 1, 6, 6)
    assert r.alphas.tolist() == [[1.0] * k + [0.0] * (4 - k) for k in (1, 2, 3, 4)]
    assert not r.sources[0, 1:].any() and (r.residual < 1 / 255).all()
    assert torch.allclose(r.sources[0, 0], patterns[0], atol=0.1)
    assert r.plausibility.shape == (4,) and len(r.warnings) == 4


def test_what_cannot_be_unknown(prior, tiny_prior, patterns):
    for given in (
        {"alphas": "unknown", "mixing": mixture()},
        {"alphas": "unknown", "noise": 0.1},
        {"sources": "unknown", "alphas": (1.0, 1.0)},
        {"sources": 3, "alphas": (1.0, None)},
    ):
        with pytest.raises(BasisError):
            separate(patterns[:1], prior, **given)
    with pytest.raises(BasisError, match="typical energies"):
        separate(torch.rand(1, 1, 8, 8), tiny_prior, sources="unknown", method=20)
