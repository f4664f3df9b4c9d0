"""A prior led away from one of the same signals that knows less."""

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
    """A prior sharpened by one that knows less: p^(1 + strength) / guide^strength.

    Going from the guide to the prior and on leads to what the prior alone knows. Where the prior
    is told a class and the guide is the same one without, that is what makes the class
    (classifier-free guidance, Ho and Salimans 2022, arXiv:2207.12598); where the guide is a
    smaller, younger network, it is what both get wrong less often (autoguidance, Karras et al.
    2024, arXiv:2406.02507). What is drawn is sharper and less varied than the prior itself, and no
    longer a sample of it.

    Args:
        prior: What to sharpen: `photos.given("ship")`.
        guide: A prior of the same signals that knows less: `photos`.
        strength: How far beyond the prior to go; 0 is the prior itself.
        above: The least noise level that is guided, in spreads of the prior: where texture would be
            lost, it decides what a signal shows (Kynkäänniemi et al. 2024, arXiv:2404.07724).
        below: The largest noise level that is guided, in spreads of the prior: in more noise, where
            all that is seen is how bright and colourful a signal is, guiding makes it glaring.
    """

    def __init__(
        self,
        prior: Prior,
        guide: Prior,
        strength: float = 1.0,
        *,
        above: float = 0.0,
        below: float = math.inf,
    ) -> None:
        if guide.shape != prior.shape:
            raise BasisError(
                f"a guide must be of the prior's signals: {guide.name!r} is of shape "
                f"{guide.shape}, {prior.name!r} of {prior.shape}"
            )
        if (guide.low, guide.high) != (prior.low, prior.high):
            raise BasisError(
                f"a guide must be of the prior's range: {guide.name!r} has values from {guide.low} "
                f"to {guide.high}, {prior.name!r} from {prior.low} to {prior.high}"
            )
        for name, value in (("strength", strength), ("above", above)):
            if not (math.isfinite(value) and value >= 0):
                raise BasisError(f"{name} must be a number of 0 or more, not {value}")
        if not below > above:
            raise BasisError(f"below must be more than above ({above:g}), not {below}")
        super().__init__(prior)
        self.guide, self.strength = guide, float(strength)
        self.above, self.below = float(above), float(below)
        # A guide is not asked about noise that it does not know.
        self.sigma_above = max(above * prior.spread, guide.sigma_min)
        self.sigma_below = min(below * prior.spread, guide.sigma_max)
        self.cost = prior.cost + guide.cost

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._led(self.prior.denoise(x, sigma), x, sigma)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        mean, variance = self.prior.moments(x, sigma)
        return self._led(mean, x, sigma), variance

    @property
    def classes(self) -> tuple[str, ...]:
        return self.prior.classes

    def given(self, *classes: str | int) -> Guided:
        told = self.prior.given(*classes)
        return Guided(told, self.guide, self.strength, above=self.above, below=self.below)

    @property
    def tile_cost(self) -> int:
        return self.prior.tile_cost + self.guide.tile_cost

    def describe(self) -> dict[str, Any]:
        guided = {"name": self.guide.name, "strength": self.strength, "above": self.above}
        if math.isfinite(self.below):
            guided["below"] = self.below
        told = self.prior.describe()
        if "guide" in told:  # it was led before
            guided["before"] = told["guide"]
        return told | {"guide": guided}

    def _led(self, mean: Tensor, x: Tensor, sigma: Tensor | float) -> Tensor:
        """The prior's own answer, moved on at the noise levels that are guided."""
        s = as_sigmas(sigma, x)
        rows = torch.nonzero((s >= self.sigma_above) & (s <= self.sigma_below)).flatten()
        if not len(rows) or not self.strength:
            return mean
        away = mean[rows] - self.guide.denoise(x[rows], s[rows])
        return mean.index_add(0, rows, away, alpha=self.strength)
