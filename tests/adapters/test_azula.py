"""azula denoisers as priors, against azula itself."""

import pytest
import torch
from torch import nn

from basis.adapters.azula import from_azula
from basis.errors import BasisError


def test_azula_denoisers_are_priors():
    azula = pytest.importorskip("azula.denoise")
    from azula.linalg.covariance import DiagonalCovariance
    from azula.noise import VESchedule, VPSchedule

    mean, variance = torch.rand(1, 4, 4).double(), torch.rand(1, 4, 4).double() + 0.1
    x = torch.rand(2, 1, 4, 4).double()
    for schedule in (VPSchedule(), VESchedule()):
        theirs = azula.GaussianDenoiser(mean, DiagonalCovariance(variance), schedule)
        prior = from_azula(theirs, (1, 4, 4), model_range=(0.0, 1.0))
        s2 = 0.3**2
        exact = mean + variance / (variance + s2) * (x - mean)
        assert torch.allclose(prior.denoise(x, 0.3), exact, atol=1e-6)
        shifted = from_azula(theirs, (1, 4, 4))  # the same in [-1, 1]
        own, s2 = 2 * x - 1, 0.6**2
        exact = mean + variance / (variance + s2) * (own - mean)
        assert torch.allclose(2 * shifted.denoise(x, 0.3) - 1, exact, atol=1e-6)
    with pytest.raises(BasisError, match="azula Denoiser"):
        from_azula(lambda x, t: x, (1, 4, 4))


def test_an_azula_network_answers_the_same_as_a_prior():
    azula = pytest.importorskip("azula.denoise")
    from azula.noise import VPSchedule

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x, t):
            return self.conv(x) * (1 + t.view(-1, 1, 1, 1) / 10)

    theirs = azula.KarrasDenoiser(Net(), VPSchedule())
    prior = from_azula(theirs, (1, 8, 8))
    x, sigma = torch.rand(3, 1, 8, 8), torch.tensor([0.05, 0.4, 3.0])
    t = prior.module.time(2 * sigma.double()).float()
    alpha, noise = theirs.schedule(t)
    assert torch.allclose(noise / alpha, 2 * sigma, rtol=1e-4)
    with torch.no_grad():
        mean = theirs(alpha.view(-1, 1, 1, 1) * (2 * x - 1), t).mean
    assert torch.allclose(2 * prior.denoise(x, sigma) - 1, mean, atol=1e-5)
