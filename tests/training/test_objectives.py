import dataclasses
import math

import pytest
import torch

from basis.errors import BasisError
from basis.training.config import TrainConfig
from basis.training.objectives import Likelihood, discrete_sigmas, focused_sigmas


def test_noise_levels():
    g = torch.Generator().manual_seed(0)
    config = TrainConfig(sigma_min=0.01, sigma_max=5.0, sigma_focus=0.3, sigma_uniform=0.0)
    drawn = focused_sigmas(config)(20_000, g)
    assert drawn.min() >= 0.01 and drawn.max() <= 5.0
    assert drawn.median() == pytest.approx(0.3, rel=0.05)
    uniform = focused_sigmas(dataclasses.replace(config, sigma_uniform=1.0))(20_000, g)
    assert uniform.median() == pytest.approx((0.01 * 5.0) ** 0.5, rel=0.1)
    levels = torch.tensor([1.0, 0.1])
    assert set(discrete_sigmas(levels)(50, g).tolist()) == set(levels.tolist())
    with pytest.raises(BasisError, match="more than 0"):
        focused_sigmas(dataclasses.replace(config, sigma_min=0.0))


def test_likelihood_models_learn_their_gradient_too():
    """Code length, plus the denoising error of the gradient, which is known for a Gaussian."""

    class Gaussian(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.std = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

        def log_prob(self, x, sigma):
            variance = self.std**2 + sigma.view(-1, 1, 1, 1) ** 2
            return -0.5 * (x.square() / variance + (2 * math.pi * variance).log()).flatten(1).sum(1)

    model = Gaussian()
    clean = torch.zeros(4, 1, 3, 3, dtype=torch.float64)
    sigma = torch.tensor([0.0, 0.1, 0.5, 2.0], dtype=torch.float64)
    noise = torch.randn(clean.shape, dtype=torch.float64)
    noisy = clean + sigma.view(-1, 1, 1, 1) * noise
    code = Likelihood().loss(model, clean, noisy, sigma)
    both = Likelihood(3.0, std=0.5).loss(model, clean, noisy, sigma)
    # sigma grad + n = n (1 - sigma^2 / (v + sigma^2)) = n v / (v + sigma^2), squared, in units of v
    # / (v + sigma^2)
    left = 0.25 / (0.25 + sigma[1:] ** 2)
    error = (noise[1:].flatten(1).square().mean(1) * left).sum() / 4
    assert both.item() == pytest.approx((code + 3 * error).item())
    both.backward()
    assert model.std.grad.isfinite() and model.std.grad != 0
