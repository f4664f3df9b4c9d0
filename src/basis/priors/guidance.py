"""Priors guided by a weaker one of the same signals, and priors joined by noise level."""

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
from basis.tensors import as_sigmas, cosine_frequencies, dct, idct


class Autoguided(Derived):
    """A prior sharpened by a weaker one: p^(1 + strength) / guide^strength.

    If the prior is conditioned on a class and the guide is the same one without, this is
    classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598). If the guide is a smaller or
    less trained network, it is autoguidance (Karras et al. 2024, arXiv:2406.02507). Samples are
    sharper and less varied than those of the prior itself.

    Args:
        prior: The prior to sharpen, such as `photos.condition("ship")`.
        guide: A weaker prior of the same signals, such as `photos`.
        strength: How far to move away from the guide; 0 is the prior itself.
        above: The smallest noise level that is guided, in units of the prior's std: less noise
            decides texture, more decides content (Kynkäänniemi et al. 2024, arXiv:2404.07724).
        below: The largest noise level that is guided, in units of the prior's std: in more noise
            guidance exaggerates brightness and color.
        finer: The longest waves that are guided, as a fraction of the signal's longest side; None
            for all of them.
    """

    def __init__(
        self,
        prior: Prior,
        guide: Prior,
        strength: float = 1.0,
        *,
        above: float = 0.0,
        below: float = math.inf,
        finer: float | None = None,
    ) -> None:
        for what in ("shape", "value_range"):
            own, other = getattr(prior, what), getattr(guide, what)
            if own != other:
                raise BasisError(
                    f"a guide must have the prior's {what}: {guide.name!r} has {other}, "
                    f"{prior.name!r} has {own}"
                )
        for name, value in (("strength", strength), ("above", above)):
            if not (math.isfinite(value) and value >= 0):
                raise BasisError(f"{name} must be a number of 0 or more, not {value}")
        if not below > above:
            raise BasisError(f"below must be more than above ({above:g}), not {below}")
        if finer is not None and not 0 < finer < math.inf:
            raise BasisError(f"finer must be a fraction of the side above 0, not {finer}")
        super().__init__(prior)
        self.guide, self.strength = guide, float(strength)
        self.above, self.below, self.finer = float(above), float(below), finer
        # The guide is evaluated only at noise levels it was trained on.
        self.sigma_above = max(above * prior.std, guide.sigma_min)
        self.sigma_below = min(below * prior.std, guide.sigma_max)
        self.evaluations = prior.evaluations + guide.evaluations

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._move(self.prior.denoise(x, sigma), x, sigma)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        mean, variance = self.prior.moments(x, sigma)
        return self._move(mean, x, sigma), variance

    @property
    def classes(self) -> tuple[str, ...]:
        return self.prior.classes

    def condition(self, *classes: str | int) -> Autoguided:
        levels: dict[str, Any] = {"above": self.above, "below": self.below, "finer": self.finer}
        return Autoguided(self.prior.condition(*classes), self.guide, self.strength, **levels)

    @property
    def base_prior(self) -> Prior:
        return self.prior.base_prior

    @property
    def _tile_evaluations(self) -> int:
        return self.prior._tile_evaluations + self.guide._tile_evaluations

    def describe(self) -> dict[str, Any]:
        guide: dict[str, Any] = {"name": self.guide.name, "strength": self.strength}
        guide["above"] = self.above
        if math.isfinite(self.below):
            guide["below"] = self.below
        if self.finer is not None:
            guide["finer"] = self.finer
        inner = self.prior.describe()
        if "guide" in inner:  # the prior is itself guided
            guide["inner"] = inner["guide"]
        return inner | {"guide": guide}

    def _move(self, mean: Tensor, x: Tensor, sigma: Tensor | float) -> Tensor:
        """The prior's own mean, moved away from the guide's at the noise levels in range."""
        s = as_sigmas(sigma, x)
        rows = torch.nonzero((s >= self.sigma_above) & (s <= self.sigma_below)).flatten()
        if not len(rows) or not self.strength:
            return mean
        away = self._fine(mean[rows] - self.guide.denoise(x[rows], s[rows]))
        return mean.index_add(0, rows, away, alpha=self.strength)

    def _fine(self, away: Tensor) -> Tensor:
        """The waves of a direction, (rows, channels, *size), that are short enough."""
        size = away.shape[2:]
        if self.finer is None or not size:
            return away
        waves = cosine_frequencies(size) * max(size) >= 1 / self.finer
        return idct(dct(away, len(size)) * waves.to(away), len(size))


def join_by_noise(prior: Prior, above: Prior, sigma: float) -> DenoiserPrior:
    """Joins two score priors of the same signals: one below noise level sigma, one above.

    A network trained on large noise levels alone (`basis train --sigma-min 0.15 --sigma-focus 0.6`)
    is better there than one trained on all levels. `Prior.save` saves the joined prior, and
    training can continue its first network.

    Args:
        prior: A U-Net for less noise; its card, range and name are kept. If it is a joined prior,
            its first network is used.
        above: A U-Net for noise of sigma and more, with the same classes. If it is a joined prior,
            its second network is used.
        sigma: The noise level from which the second one is used.
    """
    own, other = getattr(prior, "module", None), getattr(above, "module", None)
    if type(own) is Experts:
        own = Denoiser(own.network, own.mean, own.std, own.head)
    least = above.sigma_min
    if type(other) is Experts:
        least, other = other.sigma, other.above
    for one, module in ((prior, own), (above, other)):
        if type(module) is not Denoiser or one.has_likelihood:
            raise BasisError(f"only U-Net score priors can be joined; {one.name!r} is not one")
    assert isinstance(own, Denoiser) and isinstance(other, Denoiser)
    for what in ("shape", "value_range", "classes"):
        if getattr(prior, what) != getattr(above, what):
            raise BasisError(f"priors {prior.name!r} and {above.name!r} differ in their {what}")
    if (own.head is None) != (other.head is None):
        raise BasisError(
            f"of priors {prior.name!r} and {above.name!r} only one has a variance head: "
            "basis train --variance-images trains one for the other"
        )
    if not least <= sigma <= above.sigma_max or not sigma < prior.sigma_max:
        raise BasisError(
            f"sigma must be a noise level of both priors, from {least:g} to "
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
        **prior._traits | {"errors": errors},
    )
    return joined.train(prior.training)
