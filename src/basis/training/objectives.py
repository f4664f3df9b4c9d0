"""How noise levels are drawn in training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.energy import Energy
from basis.nn.glow import bits_per_dimension
from basis.nn.unet import class_weights
from basis.tensors import per_item
from basis.training.config import TrainConfig
from basis.training.signals import as_floats

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


def draw_told(labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """What is told of items with these labels, (batch,): `class_weights`, (batch, classes).

    Of a set, every class is as likely to be the item's own where all are as frequent in the data.
    """
    own = _own(labels, classes)
    coin = torch.rand(len(labels), 1, generator=generator)
    others = torch.rand(len(labels), classes, generator=generator) < 0.5
    member = torch.where(coin < 0.5, own, torch.where(coin < 0.75, True, own | others))
    return class_weights(member)


def own_class(labels: Tensor, classes: int) -> Tensor:
    """The same where every item comes with its own class alone."""
    return class_weights(_own(labels, classes))


def _own(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).bool()


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


class DualScore(Denoising):
    """The denoising error of an energy's gradient, and the error of its slope over log(sigma).

    Args:
        dual: Weight of the second, in units where 1 is the error of a density that does not depend
            on x.
        unit: What the levels of the validation figures, chosen for pictures, are multiplied by.
    """

    def __init__(self, dual: float = 1.0, unit: float = 1.0) -> None:
        super().__init__(unit)
        self.dual = dual

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        assert isinstance(model, Energy)
        by_x, by_level = model.slopes(noisy, sigma.log())
        error = self.by_signal(model, by_x, noisy, clean, sigma)
        return error + self.dual * self.by_level(by_level, clean, noisy, sigma)

    def by_signal(
        self, model: Energy, slope: Tensor, noisy: Tensor, target: Tensor, sigma: Tensor
    ) -> Tensor:
        """How far the slopes in x lead from their targets, in units of the denoising error."""
        s = per_item(sigma, noisy)
        apart = (noisy - target + s.square() * slope) / model.output_scale(s)
        return apart.square().mean()

    def by_level(self, slope: Tensor, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        """The error of the slopes over log(sigma)."""
        # |n|^2 - d is the slope of log p(noisy | clean) over log(sigma), and its variance is 2 d.
        values = clean[0].numel()
        noise = (noisy - clean) / per_item(sigma, clean)
        known = noise.flatten(1).square().sum(dim=1) - values
        return (slope - known).square().mean() / (2 * values)


def normalise(
    energy: Energy,
    images: Tensor,
    sigma_min: float,
    sigma_max: float,
    *,
    count: int = 128,
    seed: int = 0,
) -> None:
    """Sets an energy's constant so that its density integrates to one at every noise level.

    At `sigma_max`, which should be far above the spread of the data, the noisy data is as good as
    Gaussian, and the mean of log p is minus the entropy of a Gaussian of the data's covariance.
    From there the slope of the constant follows, knot by knot, from the data: the mean of
    d log p / d log sigma over noisy data is zero.

    Args:
        energy: Its `constant` is changed, nothing else.
        images: Data, (n, channels, *size), uint8 or floats.
        sigma_min, sigma_max: The noise levels that the energy was trained for; beyond them the
            slope is that at their ends.
        count: Images for every knot.
        seed: Seed of the images and of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    constant, device = energy.constant, energy.constant.slopes.device
    values = images[0].numel()

    def draw(sigma: float) -> tuple[Tensor, Tensor, Tensor]:
        pick = torch.randint(len(images), (count,), generator=generator)
        noise = torch.randn(count, *images.shape[1:], generator=generator)
        noisy = as_floats(images[pick]) + sigma * noise
        return noisy.to(device), noise.to(device), torch.full((count,), sigma, device=device)

    # An estimate minus |n|^2, whose mean is known, has a far smaller variance.
    with torch.no_grad():
        for place, knot in enumerate(constant.knots.tolist()):
            noisy, noise, sigma = draw(min(max(math.exp(knot), sigma_min), sigma_max))
            slope = _well_slope(energy, noisy, sigma) - noise.flatten(1).square().sum(dim=1)
            constant.slopes[place] = -slope.mean() / values
        noisy, noise, sigma = draw(sigma_max)
        well = energy.well(noisy, sigma, energy.features(noisy, sigma))
        mean = (well + noise.flatten(1).square().sum(dim=1) / 2).mean() - values / 2
        constant.top.zero_()
        now = mean + energy.level(noisy[:1], sigma[:1])[0]
        constant.top.copy_((-_gaussian_entropy(images, sigma_max, generator) - now) / values)


def _well_slope(energy: Energy, noisy: Tensor, sigma: Tensor) -> Tensor:
    """The slope over log(sigma) of the part of log p that depends on x, (batch,)."""
    with torch.enable_grad():
        level = sigma.log().requires_grad_()
        s = level.exp()
        total = energy.well(noisy, s, energy.features(noisy, s)).sum()
        (slope,) = torch.autograd.grad(total, level)
    return slope


def _gaussian_entropy(images: Tensor, sigma: float, generator: torch.Generator) -> float:
    """Entropy in nats of a Gaussian with the covariance of the data and of noise sigma."""
    pick = torch.randperm(len(images), generator=generator)[:1024]
    flat = as_floats(images[pick]).flatten(1).double()
    singular = torch.linalg.svdvals(flat - flat.mean(dim=0))
    variances = singular.square() / max(1, len(flat) - 1)
    noise = flat.shape[1] / 2 * (math.log(2 * math.pi * math.e) + 2 * math.log(sigma))
    return noise + 0.5 * torch.log1p(variances / sigma**2).sum().item()
