"""Weights and numbers of sources that are not known."""

import json

import numpy as np
import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.lab.studies.calibration_study import calibration, exact_calibrations
from basis.lab.studies.weights_study import random_weights
from basis.mixings.matrix import mixture
from basis.mixings.per_item import PerItemMixing
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


def test_weighted_mixing_is_a_mixing_for_each_item():
    g = torch.Generator().manual_seed(0)
    alphas = torch.rand(3, 2, generator=g).double()
    x = torch.rand(3, 2, 1, 4, 4, generator=g).double()
    m = torch.rand(3, 1, 4, 4, generator=g).double()
    many = PerItemMixing(alphas)
    assert torch.allclose((many(x) * m).sum(), (x * many.adjoint(m)).sum())
    v = torch.rand(x.shape, generator=g).double()
    for i in range(3):
        one, part = mixture(alphas[i].tolist()), slice(i, i + 1)
        assert torch.allclose(many.select(part)(x[part]), one(x[part]))
        for noise in (0.0, 0.3):
            expected = one.posterior_mean(x[part], m[part], v[part], noise)
            assert torch.allclose(many.posterior_mean(x, m, v, noise)[part], expected)
    assert torch.equal(many.select(torch.tensor([2, 0])).alphas, alphas[[2, 0]])
    assert many.output_range((0.0, 1.0))[1] == pytest.approx(alphas.sum(dim=1).max().item())
    with pytest.raises(BasisError, match="all zero"):
        PerItemMixing(torch.zeros(1, 2))


def test_unknown_weights_are_found(prior, pairs):
    truth, weights, m = pairs
    r = separate(m, prior, alphas="unknown", sources=2, effort="fast")
    assert r.alphas.shape == (3, 2) and r.alphas_known.all()
    assert (r.alphas - weights).abs().max() < 0.02
    assert r.sources.shape == truth.shape and (r.sources - truth).abs().mean() < 0.05
    assert (r.residual < 1 / 255).all() and (r.spent > 200).all()
    assert r.plausible.all()
    # Without the estimate the same mixtures are not plausible.
    assert not separate(m, prior, alphas=(0.5, 0.5), effort="fast").plausible[[0, 2]].any()


def test_some_of_the_weights(prior, pairs):
    _, _, m = pairs
    r = separate(m[:1], prior, alphas=(None, 0.3), effort="fast")
    assert r.alphas[0, 1] == 0.3 and r.alphas[0, 0].item() == pytest.approx(0.7, abs=0.02)
    alone = separate(m[:1], prior, alphas=(None, 0.3), effort="fast", seed=0)
    assert torch.equal(alone.sources, r.sources)


def test_a_prior_per_source_has_its_weight(patterns, pairs):
    truth, _, m = pairs
    own = [
        GaussianMixture(p[None], torch.tensor([0.002]), value_range=(0, 1)) for p in patterns[:2]
    ]
    r = separate(m[:1], own[::-1], alphas="unknown", effort="fast")
    assert r.alphas[0].tolist() == pytest.approx([0.3, 0.7], abs=0.02)
    assert torch.allclose(r.sources[0], truth[0].flip(0), atol=0.1)


def test_weights_of_sources_of_any_scale_cannot_be_known():
    free = GaussianMixture(torch.zeros(1, 1, 6, 6), torch.tensor([1.0]))
    r = separate(torch.randn(2, 1, 6, 6), free, alphas="unknown", sources=2, effort="fast")
    assert not r.alphas_known.any()
    assert all("weights cannot be known" in line for line in r.remarks)


def test_the_number_of_sources_is_found(prior, patterns):
    m = torch.stack(
        [patterns[0], patterns[:2].sum(dim=0), patterns[[0, 2, 3]].sum(dim=0), patterns.sum(dim=0)]
    )
    r = separate(m, prior, sources="unknown", effort="fast")
    assert r.counts.tolist() == [1, 2, 3, 4]
    assert r.sources.shape == (4, 4, 1, 6, 6)
    assert r.alphas.tolist() == [[1.0] * k + [0.0] * (4 - k) for k in (1, 2, 3, 4)]
    assert not r.sources[0, 1:].any() and (r.residual < 1 / 255).all()
    assert torch.allclose(r.sources[0, 0], patterns[0], atol=0.1)
    assert r.plausibility.shape == (4,) and len(r.remarks) == 4


def test_words_that_do_not_fit(prior, tiny_prior, patterns):
    m = patterns[:1]
    for given, words in (
        ({"alphas": "unkown"}, "or 'unknown'"),
        ({"sources": "two"}, "number of 1 or more, or 'unknown'"),
        ({"sources": 0}, "number of 1 or more, or 'unknown'"),
        ({"alphas": "unknown", "mixing": mixture()}, "plain mixtures"),
        ({"sources": "unknown", "alphas": (1.0, 1.0)}, "leave alphas out"),
        ({"sources": 3, "alphas": (1.0, None)}, "2 alphas for 3 sources"),
        ({"sources": 3, "alphas": (1.0, 1.0)}, "2 weights for 3 sources"),
    ):
        with pytest.raises(BasisError, match=words):
            separate(m, prior, **given)
    with pytest.raises(BasisError, match="typical energies"):
        separate(torch.rand(1, 1, 8, 8), tiny_prior, sources="unknown", effort=20)
    assert separate(m, prior, sources=3, effort=60).sources.shape[1] == 3
    assert separate(m, prior, alphas=(0.5, 0.5), effort=60).alphas.tolist() == [[0.5, 0.5]]


def test_the_command_estimates_and_reports(tmp_path, capsys):
    from basis.cli import main
    from basis.signals.datasets import load_images

    digits = load_images("sample").floats(slice(2))
    np.save(tmp_path / "m.npy", (0.7 * digits[0] + 0.3 * digits[1])[None].numpy())
    out = tmp_path / "out"
    line = ["separate", str(tmp_path / "m.npy"), "--alphas", "unknown", "unknown"]
    assert main([*line, "--effort", "20", "--samples", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "2 sources, weights" in shown and "plausible:" in shown
    row = json.loads((out / "run.json").read_text())["mixtures"][0]
    assert len(row["alphas"]) == 2 and 0 <= row["plausibility"] <= 1
    assert sum(mode["weight"] for mode in row["modes"]) == pytest.approx(1)
    names = {p.name for p in out.iterdir()}
    assert {"draws.png", "panel.png", "m-draw02-source1.png", "m-source2.png"} <= names
    assert main(["separate", str(tmp_path / "m.npy"), "--k", "unknown", "--alphas", "1", "1"]) == 2
    assert "leave --alphas out" in capsys.readouterr().err
    assert main([*line, "--noise", "0.1"]) == 2
    assert "plain mixtures" in capsys.readouterr().err


def test_exact_posteriors_are_covered():
    """Nominal 90 % intervals of `gibbs` cover 85 to 95 % where the posterior is exact."""
    for row in exact_calibrations(12, 19, steps=120):
        assert 0.83 < row.covered[3] < 0.97, row
        assert 0.8 < row.predicted / row.error < 1.25, row


def test_calibration_counts_what_is_outside(prior, pairs):
    truth, weights, m = pairs
    r = separate(m, prior, mixing=PerItemMixing(weights), sampler="gibbs", steps=60, samples=20)
    right = calibration("right", truth, r, tolerance=0.5)
    wrong = calibration("wrong", 1 - truth, r)
    assert right.covered == (1.0,) * 5 and max(wrong.covered) < 0.7
    assert wrong.error > 2 * wrong.predicted and right.values == truth.numel()


def test_random_weights_have_the_range():
    w = random_weights(200)
    assert (
        w.min() >= 0.25
        and w.max() <= 0.75
        and torch.allclose(w.sum(dim=1), torch.ones(200).double())
    )
