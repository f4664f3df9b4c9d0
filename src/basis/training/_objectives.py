"""What training minimises: a score model's denoising error, or a likelihood model's code length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from basis._tensors import per_item
from basis.nn import bits_per_dimension
from basis.training._config import TrainConfig


class Objective(Protocol):
    """A loss and a validation figure, both of clean images and a noise level per image."""

    record: str
    """what a card calls the validation figures by noise level"""
    label: str
    """what a plot calls them"""

    def levels(self, config: TrainConfig) -> list[float]:
        """The noise levels of the validation figures."""

    def noisy(self, clean: Tensor, sigma: Tensor, generator: torch.Generator) -> Tensor:
        """The images as the model is to see them."""

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        """What a step lowers."""

    def validate(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        """The figure for each image, (batch,)."""

    def tensors(self) -> dict[str, Tensor]:
        """What the next loss depends on beside its arguments, to be saved with a run."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes `tensors()` back from a state; raises ValueError where they do not fit."""
        return


class Denoising(Objective):
    """Denoising score matching, in units where 1 is the error of a network that outputs zero.

    Args:
        unit: What the levels of the validation figures, chosen for pictures, are multiplied by.
    """

    record = "held_out_error_over_sigma2"
    label = "held-out error / σ², averaged weights"

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit

    def levels(self, config: TrainConfig) -> list[float]:
        low, high, _ = config.noise
        wanted = (self.unit * s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0))
        return [s for s in wanted if low <= s <= high]

    def noisy(self, clean: Tensor, sigma: Tensor, generator: torch.Generator) -> Tensor:
        return clean + per_item(sigma, clean) * torch.randn(clean.shape, generator=generator)

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        scale = model.output_scale(per_item(sigma, clean))  # type: ignore[operator]
        return ((model(noisy, sigma) - clean) / scale).square().mean()

    def validate(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        error = (model(noisy, sigma) - clean).flatten(1).square().mean(dim=1)
        return error / sigma.square()


class Likelihood(Objective):
    """Code length in bits per dimension of noisy images.

    Args:
        score: Weight of a second term, the denoising error of the model's gradient, in units where
            1 is the error of the best answer that knows no more than the spread of values. A
            separation sees nothing of a likelihood but its gradient, which code length alone
            teaches slowly where noise is large and an image hardly changes it.
        spread: Standard deviation of a value.
        steps: Steps per unit of the values: the 255 of 8-bit pictures in [0, 1] are smoothed by
            uniform noise; 0 for values that are continuous already.
        unit: What the levels of the validation figures, chosen for pictures, are multiplied by.
    """

    record = "held_out_bits_per_dimension"
    label = "held-out bits per dimension, averaged weights"

    def __init__(
        self, score: float = 0.0, spread: float = 0.3, *, steps: float = 255, unit: float = 1.0
    ) -> None:
        self.score, self.spread, self.steps, self.unit = score, spread, steps, unit

    def levels(self, config: TrainConfig) -> list[float]:
        low, high, _ = config.noise
        if low == high:
            return [low]
        wanted = (self.unit * s for s in (0.01, 0.0278, 0.0774, 0.215, 0.599, 1.0))
        return [0.0, *(s for s in wanted if low <= s <= high)]

    def noisy(self, clean: Tensor, sigma: Tensor, generator: torch.Generator) -> Tensor:
        if self.steps:
            within = (torch.rand(clean.shape, generator=generator) - 0.5) / self.steps
            clean = clean + within
        noise = torch.randn(clean.shape, generator=generator)
        return clean + per_item(sigma, clean) * noise

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        if not self.score or not bool((sigma > 0).any()):
            return self.validate(model, clean, noisy, sigma).mean()
        code, gradient = self.code_and_gradient(model, noisy, sigma)
        return code.mean() + self.score * self.errors(gradient, noisy, clean, sigma).mean()

    def code_and_gradient(
        self, model: nn.Module, noisy: Tensor, sigma: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Code length, (batch,), and grad log p in nats, both to be differentiated once more."""
        point = noisy.detach().requires_grad_()
        code = self.validate(model, point, point, sigma)
        nats = code.sum() * (-noisy[0].numel() * math.log(2))
        (gradient,) = torch.autograd.grad(nats, point, create_graph=True)
        return code, gradient

    def errors(self, gradient: Tensor, noisy: Tensor, clean: Tensor, sigma: Tensor) -> Tensor:
        """How far a gradient leads from clean signals, (batch,); without noise nowhere."""
        s = per_item(sigma, clean)
        # sigma^2 grad log p_sigma(x + sigma n) should be -sigma n; without noise there is nothing
        # to compare with.
        error = (s * gradient + (noisy - clean) / s.clamp_min(1e-6)).flatten(1).square().mean(dim=1)
        error = error * (1 + (sigma / self.spread).square())
        return torch.where(sigma > 0, error, 0.0)

    def validate(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        log_prob = model.log_prob(noisy, sigma)  # type: ignore[operator]
        return bits_per_dimension(log_prob, clean[0].numel(), self.steps or 1.0)
