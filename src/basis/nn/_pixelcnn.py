"""An autoregressive model of images: every pixel given those above it and to its left.

A small relative of PixelCNN++ (Salimans et al. 2017, arXiv:1701.05517): masked convolutions, a
mixture of discretised logistics per pixel. It is told the noise level, so that one model is p_sigma
for every sigma; a logistic's share of one 8-bit step is differentiable in the pixel, so the model
has a score.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis._tensors import per_item
from basis.families import PixelCNNConfig
from basis.nn._levels import LevelEmbedding

__all__ = ["PixelCNN"]


class _Masked(nn.Conv2d):
    """A convolution that sees only pixels before its own (later layers: its own features too)."""

    def __init__(self, width_in: int, width: int, kernel: int, own: bool) -> None:
        super().__init__(width_in, width, kernel, padding=kernel // 2)
        mask = torch.zeros(kernel, kernel)
        mask[: kernel // 2] = 1
        mask[kernel // 2, : kernel // 2 + own] = 1
        self.mask: Tensor
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)


class _Block(nn.Module):
    """Gated residual block, shifted by the noise level."""

    def __init__(self, width: int, kernel: int, embedding: int) -> None:
        super().__init__()
        self.conv = _Masked(width, 2 * width, kernel, own=True)
        self.level = nn.Linear(embedding, 2 * width)
        self.out = nn.Conv2d(width, width, 1)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        h = self.conv(F.silu(x)) + self.level(emb)[:, :, None, None]
        a, b = h.chunk(2, dim=1)
        return x + self.out(torch.tanh(a) * torch.sigmoid(b))


class PixelCNN(nn.Module):
    """log p_sigma(x) of images in [0, 1], by the chain rule over pixels in raster order.

    The channels of a pixel are independent given the pixels before it.
    """

    def __init__(self, config: PixelCNNConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = LevelEmbedding(config.embedding)
        # One channel of ones tells the first pixels that there is nothing before them.
        self.enter = _Masked(config.channels + 1, config.width, 7, own=False)
        self.blocks = nn.ModuleList(
            _Block(config.width, config.kernel, config.embedding) for _ in range(config.blocks)
        )
        self.leave = nn.Conv2d(config.width, 3 * config.logistics * config.channels, 1)
        nn.init.normal_(self.leave.weight, std=0.02)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError where signals of this shape do not fit."""
        if len(shape) != 3:
            raise ValueError(f"images (channels, height, width) are accepted, not shape {shape}")

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) in nats, (batch,)."""
        c = self.config
        spread = (per_item(sigma, x).square() + c.std**2).sqrt()
        u = (x - c.mean) / spread
        emb = self.embed(sigma)
        h = self.enter(torch.cat([u, torch.ones_like(u[:, :1])], dim=1))
        for block in self.blocks:
            h = block(h, emb)
        numbers = self.leave(F.silu(h)).unflatten(1, (3, c.logistics, c.channels))
        weight, centre, raw = numbers.unbind(1)
        # The first logistics lie side by side over the range of standardised pixels.
        start = torch.linspace(-1.5, 1.5, c.logistics, device=x.device, dtype=x.dtype)
        centre = centre + start[:, None, None, None]
        inverse = (-raw.clamp(-9.0, 5.0)).exp()
        half = 0.5 / 255 / spread[:, None]
        away = u[:, None] - centre
        share = _log_share(away, half, inverse)
        density = (weight.log_softmax(dim=1) + share).logsumexp(dim=1)
        return density.flatten(1).sum(dim=1) + x[0].numel() * math.log(255)


def _log_share(away: Tensor, half: Tensor, inverse: Tensor) -> Tensor:
    """log of a logistic's probability of a step, of half-width `half`, this far from its centre.

    sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)), which no rounding makes zero.
    """
    above, below = (away + half) * inverse, (away - half) * inverse
    width = 2 * half * inverse
    return F.logsigmoid(above) + F.logsigmoid(-below) + torch.log(-torch.expm1(-width))
