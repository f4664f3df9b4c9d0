"""A prior led away from one of the same signals that knows less."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.nn.experts import Experts
from basis.nn.unet import Denoiser
from basis.priors.denoiser import DenoiserPrior
from basis.priors.prior import Derived, Prior
from basis.tensors import as_sigmas, from_cosines, radii, to_cosines

_LED = (0.4, 6.0)  # noise levels, in spreads, at which a weaker prior is led away from


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
        finer: The longest waves that are guided, as a share of the signal's longest side; all by
            default. What one source of a mixture gains in brightness and hue the other one loses,
            so that leading both drives their areas apart; leading their detail does not.
    """

    def __init__(
        self,
        prior: Prior,
        guide: Prior,
        strength: float = 1.0,
        *,
        above: float = 0.0,
        below: float = math.inf,
        finer: float = math.inf,
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
        if not finer > 0:
            raise BasisError(f"finer must be a share of the side above 0, not {finer}")
        super().__init__(prior)
        self.guide, self.strength = guide, float(strength)
        self.above, self.below, self.finer = float(above), float(below), float(finer)
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
        levels = {"above": self.above, "below": self.below, "finer": self.finer}
        return Guided(told, self.guide, self.strength, **levels)

    @property
    def unled(self) -> Prior:
        return self.prior.unled

    @property
    def tile_cost(self) -> int:
        return self.prior.tile_cost + self.guide.tile_cost

    def describe(self) -> dict[str, Any]:
        guided = {"name": self.guide.name, "strength": self.strength, "above": self.above}
        if math.isfinite(self.below):
            guided["below"] = self.below
        if math.isfinite(self.finer):
            guided["finer"] = self.finer
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
        away = self._fine(mean[rows] - self.guide.denoise(x[rows], s[rows]))
        return mean.index_add(0, rows, away, alpha=self.strength)

    def _fine(self, away: Tensor) -> Tensor:
        """The waves of a direction, (rows, channels, *size), that are short enough to be led."""
        size = away.shape[2:]
        if not math.isfinite(self.finer) or not size:
            return away
        waves = radii(size) * max(size) >= 1 / self.finer
        return from_cosines(to_cosines(away, len(size)) * waves.to(away), len(size))


def led_away(
    prior: Prior, weaker: Prior, strength: float = 0.3, *, finer: float = math.inf
) -> Guided:
    """A prior led away from a weaker one of the same signals where photos gain by it.

    That is from 0.4 spreads of noise, less being texture, to 6: in more, colours become glaring.

    Args:
        prior: What to sharpen.
        weaker: A smaller, younger network.
        strength: How far.
        finer: The longest waves that are led, as in `Guided`: one half for sources of a mixture.
    """
    return Guided(prior, weaker, strength, above=_LED[0], below=_LED[1], finer=finer)


def join_by_noise(prior: Prior, above: Prior, sigma: float) -> DenoiserPrior:
    """A prior that another one of the same signals answers for in noise of sigma and more.

    A network trained on large noise levels alone (`basis train --sigma-min 0.15 --sigma-focus 0.6`)
    knows these better than one of all levels. `basis.store.write_prior` saves what is joined, and
    training goes on from its first network.

    Args:
        prior: A U-Net of all noise levels; card, range and name are its. Of one that was joined
            before, its first network: the second is replaced.
        above: One of the same signals that knows noise of sigma and more, and as many classes. Of
            one that was joined before, its second network.
        sigma: The noise level from which the other one answers.
    """
    own, other = getattr(prior, "module", None), getattr(above, "module", None)
    if type(own) is Experts:
        own = Denoiser(own.network, own.mean, own.std, own.head)
    least = above.sigma_min
    if type(other) is Experts:
        least, other = other.sigma, other.above
    for one, module in ((prior, own), (above, other)):
        if type(module) is not Denoiser or one.has_likelihood:
            raise BasisError(f"score priors of U-Nets are joined, and {one.name!r} is none")
    assert isinstance(own, Denoiser) and isinstance(other, Denoiser)
    if (prior.shape, prior.low, prior.high, prior.classes) != (
        above.shape,
        above.low,
        above.high,
        above.classes,
    ):
        raise BasisError(
            f"priors {prior.name!r} and {above.name!r} are of signals that differ in shape, range "
            "or classes"
        )
    if (own.head is None) != (other.head is None):
        raise BasisError(
            f"of priors {prior.name!r} and {above.name!r} one has learned its variance: "
            "basis train --variance-images gives it to the other"
        )
    if not least <= sigma <= above.sigma_max or not sigma < prior.sigma_max:
        raise BasisError(
            f"sigma must be a noise level that both priors know, from {least:g} to "
            f"{min(above.sigma_max, prior.sigma_max):g}, not {sigma:g}"
        )
    errors = {s: e for s, e in prior.errors.items() if s < sigma}
    errors |= {s: e for s, e in above.errors.items() if s >= sigma}
    joined = DenoiserPrior(
        Experts(own, other, sigma),
        prior.shape,
        prior.sigma_min,
        above.sigma_max,
        name=prior.name,
        **prior.traits | {"errors": errors},
    )
    return joined.train(prior.training)
