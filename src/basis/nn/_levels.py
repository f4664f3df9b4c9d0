"""The noise level as a vector, for likelihood models that answer for many levels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

DEQUANTISATION = 1 / 255 / math.sqrt(12)
"""Standard deviation of uniform noise within one 8-bit step: what is left at sigma = 0."""


class LevelEmbedding(nn.Module):
    """Maps sigma, (batch,), zero allowed, to (batch, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.register_buffer("frequencies", torch.logspace(-1, 1, 16), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(32, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU()
        )

    def forward(self, sigma: Tensor) -> Tensor:
        label = (sigma.square() + DEQUANTISATION**2).sqrt().log() / 2
        angle = label[:, None] * self.frequencies
        return self.layers(torch.cat([angle.sin(), angle.cos()], dim=1))
