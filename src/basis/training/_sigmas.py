"""How noise levels are drawn in training."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.training._config import TrainConfig

SigmaDraw = Callable[[int, torch.Generator], Tensor]
"""Draws this many noise levels, (count,)."""


def log_uniform(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Numbers whose logarithms are uniform between those of low and high."""
    bottom, top = math.log(low), math.log(high)
    return (torch.rand(count, generator=generator) * (top - bottom) + bottom).exp()


def _positive(config: TrainConfig) -> tuple[float, float, float]:
    """The noise levels of a run that draws their logarithms."""
    levels = config.noise
    if not min(levels) > 0:
        raise BasisError(
            "sigma_min, sigma_max and sigma_focus must be more than 0, not "
            f"{', '.join(f'{level:g}' for level in levels)}; noise levels are drawn by their "
            "logarithms"
        )
    return levels


def focused_sigmas(config: TrainConfig) -> SigmaDraw:
    """Noise levels as `TrainConfig` describes them."""
    least, most, middle = (math.log(level) for level in _positive(config))

    def draw(count: int, generator: torch.Generator) -> Tensor:
        coin = torch.rand(count, generator=generator)
        spread = torch.rand(count, generator=generator) * (most - least) + least
        focus = torch.randn(count, generator=generator) * config.sigma_spread
        focus = (focus + middle).clamp(least, most)
        return torch.where(coin < config.sigma_uniform, spread, focus).exp()

    return draw


def likelihood_sigmas(config: TrainConfig, noiseless: float = 0.1) -> SigmaDraw:
    """Levels log-uniform over the whole range, and no noise for a share of the images."""
    low, high, _ = _positive(config)

    def draw(count: int, generator: torch.Generator) -> Tensor:
        coin = torch.rand(count, generator=generator)
        sigma = log_uniform(count, low, high, generator)
        return torch.where(coin < noiseless, torch.zeros(()), sigma)

    return draw


def one_sigma(sigma: float) -> SigmaDraw:
    """The same noise level for every image; 0 for the noiseless model."""
    return lambda count, generator: torch.full((count,), sigma)


def discrete_sigmas(levels: Tensor) -> SigmaDraw:
    """Noise levels drawn uniformly from a list, (levels,), as NCSN is trained."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return levels[torch.randint(len(levels), (count,), generator=generator)]

    return draw
