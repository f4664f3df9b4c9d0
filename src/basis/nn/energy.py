"""An energy made of a U-Net: a density whose gradient denoises.

    log p_sigma(x) = -|x - D(x, sigma)|^2 / (2 sigma^2) + c(sigma)

with D a U-Net in the form of a denoiser, so that a trained one is a good start. c is one number per
noise level that makes the density integrate to one. It follows from the larger noise levels,
because the mean of d log p_sigma / d log sigma over p_sigma is zero for normalized densities.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from basis.nn.kind import NetworkKind
from basis.nn.unet import (
    Denoiser,
    UNet,
    UNetConfig,
    VarianceHead,
    build_denoiser,
    describe_denoiser,
)
from basis.tensors import per_item


class LevelConstant(nn.Module):
    """c(sigma), stored as its slope over log(sigma) at knots, linear between them.

    The knots are spaced evenly over log(sigma) from 0.01 to 40 standard deviations of the data;
    beyond them the slope is constant. Both weights are in nats per dimension, relative to the noise
    alone, -log(sigma) - log(2 pi) / 2.

    Args:
        std: Standard deviation of the data's values.
    """

    def __init__(self, std: float, knots: int = 33) -> None:
        super().__init__()
        self.knots: Tensor
        levels = math.log(std) + torch.linspace(math.log(0.01), math.log(40.0), knots)
        self.register_buffer("knots", levels, persistent=False)
        self.slopes = nn.Parameter(torch.zeros(knots))
        self.top = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, sigma: Tensor) -> Tensor:
        """c(sigma) per dimension; sigma and the answer are (batch,)."""
        log_sigma = sigma.log()
        knots, slopes = self.knots.to(sigma.dtype), self.slopes.to(sigma.dtype)
        gap = knots[1] - knots[0]
        # From every knot up to the last one, by the trapezoid's rule, which is exact here.
        pieces = gap * (slopes[1:] + slopes[:-1]) / 2
        above = torch.cat([pieces.flip(0).cumsum(0).flip(0), pieces.new_zeros(1)])
        below = ((log_sigma - knots[0]) / gap).detach().floor().clamp(0, len(knots) - 2).long()
        inside = log_sigma.clamp(knots[0], knots[-1]) - knots[below]
        rise = (slopes[below + 1] - slopes[below]) / gap
        gained = inside * slopes[below] + rise * inside.square() / 2
        beyond = (log_sigma - knots[-1]).clamp_min(0) * slopes[-1]
        beyond = beyond + (log_sigma - knots[0]).clamp_max(0) * slopes[0]
        own = self.top - above[below] + gained + beyond
        return own - log_sigma - math.log(2 * math.pi) / 2


class Energy(Denoiser):
    """A density of noisy signals, log p_sigma(x), whose gradient denoises.

    Its weights are those of a `Denoiser` and of a `LevelConstant`; called, it denoises by the
    gradient of its density, which is not the U-Net's own output.

    Args:
        network: The U-Net; its attention is computed step by step, because training needs a second
            derivative, which the fused one does not have.
        mean, std: Mean and standard deviation of the data's values.
        head: Predicts the variance of each value, for `moments`.
    """

    noiseless = False  # without noise the data has no density

    likelihood_level = 1 / 3
    """The noise level, in units of std, at which its log p ranks clean signals best."""

    def __init__(
        self, network: UNet, mean: float, std: float, head: VarianceHead | None = None
    ) -> None:
        super().__init__(network, mean, std, head)
        network.use_plain_attention()
        self.constant = LevelConstant(std)

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) in nats, (batch,); x is (batch, channels, *size), sigma (batch,)."""
        return self.well(x, sigma, self.features(x, sigma)) + self.level(x, sigma)

    def well(self, x: Tensor, sigma: Tensor, features: Tensor) -> Tensor:
        """-|x - D|^2 / (2 sigma^2), (batch,), by the network's last hidden state for (x, sigma)."""
        total = (per_item(sigma, x).square() + self.std**2).sqrt()
        # (x - D) / sigma without the difference of two numbers that are nearly alike.
        kept = per_item(sigma, x) / total.square() * (x - self.mean)
        apart = kept - self.std / total * self.network.read(features)
        return -apart.flatten(1).square().sum(dim=1) / 2

    def level(self, x: Tensor, sigma: Tensor) -> Tensor:
        """c(sigma) in nats for signals of x's shape, (batch,)."""
        return x[0].numel() * self.constant(sigma)

    def forward(self, x: Tensor, sigma: Tensor, condition: Tensor | None = None) -> Tensor:
        """x + sigma^2 grad log p_sigma(x); shapes as in `log_prob`."""
        return self.features_and_mean(x, sigma, condition)[1]

    def features_and_mean(
        self, x: Tensor, sigma: Tensor, condition: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # Separations and validation run in inference mode, where nothing can be differentiated.
        with torch.inference_mode(False), torch.enable_grad():
            point, s = x.clone().requires_grad_(), sigma.clone()
            features = self.features(point, s, condition)
            (gradient,) = torch.autograd.grad(self.well(point, s, features).sum(), point)
        return features.detach(), x + per_item(sigma, x).square() * gradient

    def slopes(self, x: Tensor, log_sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of log p_sigma(x) in x and in log(sigma), with a graph through both.

        Shapes:
            x: (batch, channels, *size), and so the first answer.
            log_sigma: (batch,), and so the second.
        """
        point, level = x.detach().requires_grad_(), log_sigma.detach().requires_grad_()
        total = self.log_prob(point, level.exp()).sum()
        by_x, by_level = torch.autograd.grad(total, (point, level), create_graph=True)
        return by_x, by_level


KIND = NetworkKind(
    name="energy",
    title="energy",
    module=Energy,
    config=UNetConfig,
    objective="energy",
    build=partial(build_denoiser, module=Energy),
    describe=describe_denoiser,
)
