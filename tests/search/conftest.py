import pytest
import torch

from basis.priors.gaussian import GaussianMixture


@pytest.fixture
def bumps():
    """Two pictures far apart, each a little uncertain."""
    pictures = torch.zeros(2, 1, 2, 2, dtype=torch.float64)
    pictures[0, 0, 0], pictures[1, 0, 1] = 3.0, 3.0
    return GaussianMixture(pictures, torch.tensor([0.04, 0.04], dtype=torch.float64))
