"""A prior led away from the mistakes of a weaker one of the same signals."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis._tensors import as_sigmas
from basis.priors._derived import Derived
from basis.priors._prior import Prior


class Guided(Derived):
    """A prior sharpened by a weaker one: p^(1 + strength) / guide^strength at large noise.

    A network that is too small or too young spreads its probability over signals that are no
    signal, and a smaller, younger one does so more. Going from the second to the first and on leads
    away from the mistakes they share (autoguidance, Karras et al. 2024, arXiv:2406.02507), at noise
    levels where it is decided what a signal shows; below, texture would be lost (Kynkäänniemi et
    al. 2024, arXiv:2404.07724). What is drawn is sharper and less varied than the prior itself, and
    no longer a sample of it: for samples that are looked at, not for separations that are measured.

    Args:
        prior: What to sharpen.
        guide: A weaker prior of the same signals: a smaller network, trained less on the same data.
        strength: How far beyond the prior to go; 0 is the prior itself.
        above: The least noise level that is guided, in spreads of the prior.
    """

    def __init__(
        self, prior: Prior, guide: Prior, strength: float = 0.25, *, above: float = 0.8
    ) -> None:
        if guide.shape != prior.shape:
            raise BasisError(
                f"a guide must be of the prior's signals: {guide.name!r} is of shape "
                f"{guide.shape}, {prior.name!r} of {prior.shape}"
            )
        for name, value in (("strength", strength), ("above", above)):
            if not (math.isfinite(value) and value >= 0):
                raise BasisError(f"{name} must be a number of 0 or more, not {value}")
        super().__init__(prior)
        self.guide, self.strength = guide, float(strength)
        # A guide is not asked about noise that it does not know.
        self.sigma_above = max(above * prior.spread, guide.sigma_min)
        self.cost = prior.cost + guide.cost

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._led(self.prior.denoise(x, sigma), x, sigma)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        mean, variance = self.prior.moments(x, sigma)
        return self._led(mean, x, sigma), variance

    @property
    def tile_cost(self) -> int:
        return self.prior.tile_cost + self.guide.tile_cost

    def describe(self) -> dict[str, Any]:
        guided = {"name": self.guide.name, "strength": self.strength, "above": self.sigma_above}
        return self.prior.describe() | {"guide": guided}

    def _led(self, mean: Tensor, x: Tensor, sigma: Tensor | float) -> Tensor:
        """The prior's own answer, moved on where the noise is large enough."""
        s = as_sigmas(sigma, x)
        rows = torch.nonzero((s >= self.sigma_above) & (s <= self.guide.sigma_max)).flatten()
        if not len(rows) or not self.strength:
            return mean
        away = mean[rows] - self.guide.denoise(x[rows], s[rows])
        return mean.index_add(0, rows, away, alpha=self.strength)
