"""Problems and their random numbers."""

import pytest
import torch
from posteriors import F64, OneStream

from basis.mixings.matrix import mixture
from basis.mixings.per_item import PerItemMixing
from basis.priors.gaussian import GaussianMixture
from basis.samplers.problem import Noise, Problem, item_seeds


@pytest.mark.parametrize(("std", "low", "high"), [(1, 1e-4, 1e4), (10, 1e-4, 1e4), (1, 0.3, 2.0)])
def test_default_noise_levels_are_multiples_of_the_std(std, low, high):
    prior = GaussianMixture(
        torch.zeros(1, 1, 4), torch.tensor([std**2]), sigma_min=low, sigma_max=high
    )
    problem = Problem([prior], mixture((1.0,)), torch.zeros(1, 1, 4), OneStream())
    found = problem.noise_levels((None, None, None), (3, 7 / 6, 1 / 6))
    expected = [min(max(std * s, low), high) for s in (3, 7 / 6, 1 / 6)]
    assert found == pytest.approx(expected, rel=1e-6)
    if high == 2.0:  # defaults also keep the order with given levels
        found = problem.noise_levels((None, 0.5, None), (3, 1, 1 / 6))
        assert found == pytest.approx([2.0, 0.5, 0.3])
        found = problem.noise_levels((0.4, None, None), (3, 1, 1 / 6))
        assert found == pytest.approx([0.4, 0.4, 0.3])


def test_chains_count_their_evaluations_for_their_items(toy_prior):
    m = torch.rand(3, 1, 4, 4, dtype=F64)
    mixing = PerItemMixing(torch.tensor([[1.0, 1.0], [0.5, 0.5], [0.2, 0.8]]))
    problem = Problem([toy_prior] * 2, mixing, m, Noise(range(3)))
    problem.denoise(problem.center(), 0.1)
    chains = problem.chains(torch.tensor([2, 0]), 2, range(4))
    assert chains.mixing.alphas[:, 0].tolist() == pytest.approx([0.2, 0.2, 1.0, 1.0])
    assert torch.equal(chains.observation, m[[2, 2, 0, 0]])
    chains.denoise(chains.center(), 0.1)
    assert problem.evaluations.tolist() == [6, 2, 6]


def test_sources_of_one_prior_share_a_call(toy_prior):
    other = GaussianMixture(torch.full((1, 1, 4, 4), 0.5, dtype=F64), torch.tensor([0.1]))
    priors = [toy_prior, other, toy_prior]
    problem = Problem(priors, mixture((1.0,) * 3), torch.rand(2, 1, 4, 4, dtype=F64), OneStream())
    x = torch.rand(problem.state_shape, dtype=F64)
    expected = torch.stack([p.denoise(x[:, i], 0.2) for i, p in enumerate(priors)], dim=1)
    assert torch.allclose(problem.denoise(x, 0.2), expected)
    assert torch.allclose(problem.moments(x, 0.2)[0], expected)
    assert problem.log_prob(x, 0.2).shape == (2,)
    assert problem.evaluations.tolist() == [9, 9]


def test_seeds_depend_on_content_and_count_repetitions():
    m = torch.rand(3, 1, 2, 2)
    seeds = item_seeds(m, 2, seed=0)
    assert item_seeds(m.flip(0), 2, seed=0) == seeds[::-1]
    assert item_seeds(m[1:2], 2, seed=0) == seeds[1:2]
    flat = [s for row in (*seeds, *item_seeds(m, 2, 1), *item_seeds(m, 2, 0, "x")) for s in row]
    twins = item_seeds(torch.cat([m[:1], m[:1]]), 1, seed=0)
    assert len(set(flat)) == 18 and twins[0] != twins[1]
    assert item_seeds(m[:1], 1, 0, occurrences=[1])[0] == twins[1]


def test_noise_of_an_item_does_not_depend_on_its_batch():
    like = torch.zeros(3, 4, dtype=F64)
    both, alone = Noise([1, 2, 3]), Noise([2])
    for kind in ("normal", "uniform"):
        assert torch.equal(getattr(both, kind)(like)[1:2], getattr(alone, kind)(like[:1]))
