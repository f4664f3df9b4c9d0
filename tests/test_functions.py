"""Plain functions as priors."""

import pytest
import torch

from basis._separate import separate
from basis.errors import BasisError
from basis.metrics import psnr
from basis.priors.prior import Prior

RANGE = {"shape": (1, 4, 4), "sigma_min": 0.02, "sigma_max": 20.0}


def shifted(function, scale_answer):
    """The same function for somebody who thinks in [-1, 1]."""

    def other(y, sigma):
        return scale_answer(function((y + 1) / 2, sigma / 2))

    return other


@pytest.mark.parametrize("pixels", [(0.0, 1.0), (-1.0, 1.0)])
def test_all_three_are_the_same_prior(toy_prior, pixels):
    if pixels[0]:
        denoise = shifted(toy_prior.denoise, lambda d: 2 * d - 1)
        score = shifted(toy_prior.score, lambda s: s / 2)
        half = torch.tensor(0.5).log() * 16
        log_prob = shifted(toy_prior.log_prob, lambda p: p + half)
    else:
        denoise, score, log_prob = toy_prior.denoise, toy_prior.score, toy_prior.log_prob
    priors = [
        Prior.from_denoiser(denoise, **RANGE, model_range=pixels),
        Prior.from_score(score, **RANGE, model_range=pixels),
        Prior.from_log_prob(log_prob, **RANGE, model_range=pixels),
    ]
    x = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    sigma = torch.tensor([0.05, 0.3, 2.0], dtype=torch.float64)
    for prior in priors:
        assert torch.allclose(prior.denoise(x, sigma), toy_prior.denoise(x, sigma), atol=1e-8)
        assert torch.allclose(prior.score(x, sigma), toy_prior.score(x, sigma), atol=1e-5)
    assert torch.allclose(priors[2].log_prob(x, sigma), toy_prior.log_prob(x, sigma), atol=1e-6)
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    r = separate(truth.sum(dim=1), priors[0], effort=300)
    assert psnr(r.sources, truth, permute=True).item() > 25


def test_mistakes_are_told():
    with pytest.raises(BasisError, match="model_range"):
        Prior.from_denoiser(lambda x, s: x, **RANGE, model_range=(1.0, 0.0))
    with pytest.raises(BasisError, match="sigma_min"):
        Prior.from_score(lambda x, s: x, (1, 4, 4), 0.0, 1.0)
    wrong = Prior.from_denoiser(lambda x, s: x[:, :, :2], **RANGE, name="mine")
    with pytest.raises(BasisError, match="'mine'.*shape"):
        wrong.denoise(torch.rand(1, 1, 4, 4), 0.1)
