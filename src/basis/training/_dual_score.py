"""How an energy is trained: dual score matching, and the constant that normalises it.

Guth, Kadkhodaie & Simoncelli 2025 (arXiv:2506.05310). A density of noisy signals has two slopes
whose expectations given the noise are known: in x, by Tweedie's formula, and in the noise level.
The first alone says nothing of how probable one mode is against another; the second ties every
noise level to those above it, and so to the largest, where all signals look like noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from basis._tensors import per_item
from basis.nn import Energy
from basis.training._objectives import Denoising
from basis.training._signals import as_floats


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
