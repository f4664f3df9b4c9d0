"""Noise levels and losses of training."""

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
from basis.training.data import as_floats
from basis.training.teacher import Teacher

SigmaDraw = Callable[[int, torch.Generator], Tensor]
"""Draws a number of noise levels, (count,)."""


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
            f"{', '.join(f'{level:g}' for level in levels)}: noise levels are drawn by their "
            "logarithms"
        )
    return levels


def focused_sigmas(config: TrainConfig) -> SigmaDraw:
    """Noise levels as `TrainConfig` describes them."""
    least, most, middle = (math.log(level) for level in _positive(config))

    def draw(count: int, generator: torch.Generator) -> Tensor:
        coin = torch.rand(count, generator=generator)
        uniform = torch.rand(count, generator=generator) * (most - least) + least
        focus = torch.randn(count, generator=generator) * config.sigma_std
        focus = (focus + middle).clamp(least, most)
        return torch.where(coin < config.sigma_uniform, uniform, focus).exp()

    return draw


def likelihood_sigmas(config: TrainConfig, noiseless: float = 0.1) -> SigmaDraw:
    """Log-uniform noise levels over the whole range, and no noise for a fraction of the images."""
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
    """Noise levels drawn uniformly from a list, (levels,), as for NCSN."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return levels[torch.randint(len(levels), (count,), generator=generator)]

    return draw


def draw_conditions(labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Random conditions that hold for items with these labels, (batch,): (batch, classes).

    Half of them are the item's own class, a quarter all classes, and a quarter a random set with
    the own class in it, any class of which is equally likely if all are equally frequent.
    """
    own = torch.nn.functional.one_hot(labels, classes).bool()
    coin = torch.rand(len(labels), 1, generator=generator)
    others = torch.rand(len(labels), classes, generator=generator) < 0.5
    member = torch.where(coin < 0.5, own, torch.where(coin < 0.75, True, own | others))
    return class_weights(member)


def own_conditions(labels: Tensor, classes: int) -> Tensor:
    """Each item's own class as its condition."""
    return class_weights(torch.nn.functional.one_hot(labels, classes).bool())


class Objective(Protocol):
    """A loss and a validation figure of clean images with one noise level each."""

    record: str
    """the name of the validation figures on cards"""
    label: str
    """their name in plots"""
    teacher: Teacher | None = None
    """what the gradient is compared with, instead of the clean images"""

    def levels(self, config: TrainConfig) -> list[float]:
        """The noise levels of the validation figures."""

    def noisy(self, clean: Tensor, sigma: Tensor, generator: torch.Generator) -> Tensor:
        """The images with noise, as the model sees them."""

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        """The training loss."""

    def validate(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        """The figure of each image, (batch,)."""

    def targets(self, clean: Tensor, noisy: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noisy images, their noise levels, and what their gradients should point to.

        A teacher answers with its own means and adds states of separations after the batch.
        """
        return self.teacher.ask(clean, noisy, sigma) if self.teacher else (noisy, sigma, clean)

    def tensors(self) -> dict[str, Tensor]:
        """What the next loss depends on besides its arguments; it is saved with the run."""
        return self.teacher.states.tensors if self.teacher else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores `tensors()` from a state; raises ValueError if they do not fit."""
        if self.teacher:
            self.teacher.states.load(tensors)


class Denoising(Objective):
    """Denoising score matching, in units where 1 is the error of a network that outputs zero.

    Args:
        scale: Multiplies the levels of the validation figures, which are those for pictures.
    """

    record = "held_out_error_over_sigma2"
    label = "held-out error / σ², averaged weights"

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def levels(self, config: TrainConfig) -> list[float]:
        low, high, _ = config.noise
        wanted = (self.scale * s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0))
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
    """Code length of noisy images in bits per dimension, and the denoising error of the gradient.

    A separation uses nothing but the gradient of a likelihood, which code length alone teaches
    slowly at large noise, where an image hardly changes it.

    Args:
        weight: Weight of the gradient's denoising error, in units where 1 is the error of the best
            answer that knows only the standard deviation of the values.
        std: Standard deviation of the values.
        steps: Steps per unit of the values: the 255 of 8-bit pictures in [0, 1] are smoothed by
            uniform noise; 0 for values that are continuous already.
        scale: Multiplies the levels of the validation figures, which are those for pictures.
        teacher: Compares the gradient with that of another prior.
    """

    record = "held_out_bits_per_dimension"
    label = "held-out bits per dimension, averaged weights"

    def __init__(
        self,
        weight: float = 0.0,
        std: float = 0.3,
        *,
        steps: float = 255,
        scale: float = 1.0,
        teacher: Teacher | None = None,
    ) -> None:
        self.weight, self.std, self.steps, self.scale = weight, std, steps, scale
        self.teacher = teacher

    def levels(self, config: TrainConfig) -> list[float]:
        low, high, _ = config.noise
        if low == high:
            return [low]
        wanted = (self.scale * s for s in (0.01, 0.0278, 0.0774, 0.215, 0.599, 1.0))
        return [0.0, *(s for s in wanted if low <= s <= high)]

    def noisy(self, clean: Tensor, sigma: Tensor, generator: torch.Generator) -> Tensor:
        if self.steps:
            within = (torch.rand(clean.shape, generator=generator) - 0.5) / self.steps
            clean = clean + within
        noise = torch.randn(clean.shape, generator=generator)
        return clean + per_item(sigma, clean) * noise

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        if not self.teacher and (not self.weight or not bool((sigma > 0).any())):
            return self.validate(model, clean, noisy, sigma).mean()
        x, s, target = self.targets(clean, noisy, sigma)
        point = x.detach().requires_grad_()
        code = self.validate(model, point, point, s)
        nats = code.sum() * (-x[0].numel() * math.log(2))
        (gradient,) = torch.autograd.grad(nats, point, create_graph=True)
        if self.teacher:
            self.teacher.move(x + per_item(s, x).square() * gradient)
        # sigma^2 grad log p_sigma(x + sigma n) should be -sigma n; without noise there is nothing
        # to compare with.
        sd = per_item(s, x)
        error = (sd * gradient + (x - target) / sd.clamp_min(1e-6)).flatten(1).square().mean(dim=1)
        error = torch.where(s > 0, error * (1 + (s / self.std).square()), 0.0)
        return code[: len(clean)].mean() + self.weight * error.mean()

    def validate(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        log_prob = model.log_prob(noisy, sigma)  # type: ignore[operator]
        return bits_per_dimension(log_prob, clean[0].numel(), self.steps or 1.0)


class DualScore(Denoising):
    """The denoising error of an energy's gradient, and the error of its slope over log(sigma).

    Args:
        weight: Weight of the second error, in units where 1 is the error of a density that does not
            depend on x.
        scale: Multiplies the levels of the validation figures, which are those for pictures.
        teacher: Compares the gradient with that of another prior.
    """

    def __init__(
        self, weight: float = 1.0, scale: float = 1.0, *, teacher: Teacher | None = None
    ) -> None:
        super().__init__(scale)
        self.weight, self.teacher = weight, teacher

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        assert isinstance(model, Energy)
        x, s, target = self.targets(clean, noisy, sigma)
        by_x, by_level = model.slopes(x, s.log())
        sd = per_item(s, x)
        if self.teacher:
            self.teacher.move(x + sd.square() * by_x)
        error = ((x - target + sd.square() * by_x) / model.output_scale(sd)).square().mean()
        # |n|^2 - d is the slope of log p(noisy | clean) over log(sigma), and its variance is 2 d.
        values = clean[0].numel()
        noise = (noisy - clean) / per_item(sigma, clean)
        slope = noise.flatten(1).square().sum(dim=1) - values
        by_level = (by_level[: len(clean)] - slope).square().mean() / (2 * values)
        return error + self.weight * by_level


def normalize(
    energy: Energy,
    images: Tensor,
    sigma_min: float,
    sigma_max: float,
    *,
    count: int = 128,
    seed: int = 0,
) -> None:
    """Sets an energy's constant so that its density integrates to one at every noise level.

    At `sigma_max`, which should be far above the data's standard deviation, the noisy data is
    nearly Gaussian, and the mean of log p is minus the entropy of a Gaussian with the data's
    covariance. From there the slope of the constant follows, knot by knot, from the data: the mean
    of d log p / d log sigma over noisy data is zero.

    Args:
        energy: Its `constant` is changed, nothing else.
        images: Data, (n, channels, *size), uint8 or floats.
        sigma_min, sigma_max: The noise levels that the energy was trained for; beyond them the
            slope is constant.
        count: Images for each knot.
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
        for index, knot in enumerate(constant.knots.tolist()):
            noisy, noise, sigma = draw(min(max(math.exp(knot), sigma_min), sigma_max))
            slope = _well_slope(energy, noisy, sigma) - noise.flatten(1).square().sum(dim=1)
            constant.slopes[index] = -slope.mean() / values
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
