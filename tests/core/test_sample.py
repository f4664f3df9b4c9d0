import pytest
import torch

import basis
from basis import BasisError, GaussianMixture


@pytest.fixture
def two_greys():
    means = torch.tensor([0.3, 0.7])[:, None, None, None].expand(2, 1, 2, 2)
    variances, weights = torch.full((2,), 0.02**2), torch.tensor([0.25, 0.75])
    return GaussianMixture(means, variances, weights, sigma_min=0.005, sigma_max=10.0)


def test_samples_have_the_distribution_of_the_prior(two_greys):
    x = basis.sample(two_greys, 1000, steps=40, seed=1)
    assert x.shape == (1000, 1, 2, 2)
    upper = x.mean(dim=(1, 2, 3)) > 0.5
    assert upper.float().mean().item() == pytest.approx(0.75, abs=0.045)  # three standard errors
    assert x[upper].mean().item() == pytest.approx(0.7, abs=0.005)
    assert x[upper].std().item() == pytest.approx(0.02, rel=0.25)


def test_a_sample_depends_only_on_seed_and_index(two_greys):
    few, many = (basis.sample(two_greys, n, steps=5, batch_size=b) for n, b in ((3, 2), (5, 5)))
    assert torch.equal(few, many[:3])
    assert not torch.equal(few, basis.sample(two_greys, 3, steps=5, seed=1))
    seen = []
    basis.sample(two_greys, 3, steps=5, batch_size=2, progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (15, 15)
    with pytest.raises(BasisError, match="count"):
        basis.sample(two_greys, 0)
    with pytest.raises(BasisError, match="not class-conditional"):
        basis.sample(two_greys, 1, each_class=True)
