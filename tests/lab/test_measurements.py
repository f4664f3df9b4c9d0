"""Measurements of priors and of uncertainty that tables show, against known answers."""

import math

import pytest
import torch

from basis.errors import BasisError
from basis.lab.tables.conditions import in_order
from basis.lab.tables.priors import bits, evaluation_cost, gradient_norms, has_noiseless_model
from basis.lab.tables.uncertainty import exact_calibrations, plausibility_cases, random_alphas
from basis.priors.gaussian import GaussianMixture
from basis.store.loading import load_prior


def test_gradients_and_bits_are_exact_for_a_gaussian():
    """At the mean of N(mu, v), sigma |grad| is |n| sigma^2 / (v + sigma^2), and the code length is
    known.
    """
    mean = torch.full((1, 1, 16, 16), 0.5, dtype=torch.float64)
    variances = torch.tensor([0.04], dtype=torch.float64)
    prior = GaussianMixture(mean, variances, value_range=(0.0, 1.0))
    images = mean.expand(400, 1, 16, 16)
    for row in gradient_norms(prior, images, [0.1, 1.0]):
        share = row.sigma**2 / (0.04 + row.sigma**2)
        assert row.mean == pytest.approx(16 * share, rel=0.01)
    variance = 0.04 + 0.2**2
    # Images at the mean, noise of 0.2: E (x - mu)^2 = 0.04, up to the width of an 8-bit step.
    nats = 0.5 * math.log(2 * math.pi * variance) + 0.04 / (2 * variance)
    expected = (nats + math.log(255)) / math.log(2)
    assert bits(prior, images, 0.2).mean().item() == pytest.approx(expected, abs=0.01)


def test_noiseless_models():
    prior = GaussianMixture(torch.zeros(1, 1, 4, 4), torch.ones(1))
    assert has_noiseless_model(prior)
    assert not has_noiseless_model(load_prior("mnist-energy"))


def test_the_cost_of_a_step(tiny_prior):
    own, tiles = evaluation_cost(tiny_prior), evaluation_cost(tiny_prior, 14, repeats=1)
    assert (own.prior, own.size, own.tiles, own.pixels) == ("tiny", (8, 8), 1, 64)
    assert (tiles.size, tiles.tiles) == ((14, 14), 9)
    assert tiles.flops == 9 * own.flops > 0 and own.seconds > 0
    sound = GaussianMixture(torch.zeros(1, 1, 16), torch.ones(1))
    with pytest.raises(BasisError, match="side needs a prior of pictures"):
        evaluation_cost(sound, 32)


def test_intervals_of_exact_posteriors_cover_the_truth():
    for row in exact_calibrations(12, 20, steps=60):
        assert row.mixtures == 12 and row.samples == 20
        assert row.covered == tuple(sorted(row.covered))
        assert row.covered[3] == pytest.approx(0.9, abs=0.06), row.name
        assert row.predicted == pytest.approx(row.error, rel=0.25), row.name


def test_wrong_mixtures_differ_from_right_ones():
    g = torch.Generator().manual_seed(0)
    images = torch.rand(16, 1, 6, 6, generator=g)
    two, three = images[:8].view(4, 2, 1, 6, 6), images[:12].view(4, 3, 1, 6, 6)
    cases = plausibility_cases(two, two, three, images[8:], images[:8])
    assert [case.right for case in cases] == [True] + 8 * [False]
    right = cases[0].observation
    assert all(case.observation.shape == right.shape for case in cases)
    assert not any(torch.equal(c.observation, right) for c in cases[1:-1])
    with pytest.raises(BasisError, match="4 mixtures"):
        plausibility_cases(two, two, three[:3], images[8:], images[:8])


def test_random_alphas_and_orders():
    alphas = random_alphas(50)
    assert torch.allclose(alphas.sum(dim=1), torch.ones(50, dtype=torch.float64))
    assert alphas.min() >= 0.25 and alphas.max() <= 0.75
    truth = torch.rand(5, 2, 1, 4, 4)
    assert in_order(truth, truth).all() and not in_order(truth.flip(1), truth).any()
