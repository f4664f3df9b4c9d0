"""States that separations visit, most of which are no noised signal of the training data.

Chains of `gibbs` separate mixtures of two training signals, and go on by a step whenever a model is
trained by one: the model's answers, or a teacher's, are there already. A chain that has come to its
last noise level begins again with another mixture.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from basis._errors import BasisError
from basis._tensors import per_item
from basis.mixings import mixture
from basis.priors import Prior
from basis.samplers import Gibbs, at_least_sure
from basis.training._signals import as_floats

_TURN = 7 / 6  # of score priors, in spreads; states are as many above as `gibbs` has there


class Visited:
    """Chains that separate mixtures of two training signals, each at a noise level of its own.

    Args:
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Chains; they visit twice as many states at a time.
        spread: Standard deviation of a value.
        sigma_min, sigma_max: The noise levels that the states may have.

    Random numbers are torch's own, which the trainer seeds at every step.
    """

    def __init__(
        self, images: Tensor, count: int, spread: float, sigma_min: float, sigma_max: float
    ) -> None:
        self.images, self.count, self.spread = images, count, spread
        multiples = (Gibbs.spreads[0], _TURN, Gibbs.spreads[1])
        first, turn, last = (min(max(k * spread, sigma_min), sigma_max) for k in multiples)
        above, below = Gibbs().noise_levels(first, turn, last)
        self.levels = torch.tensor(above[:-1] + below)
        self.mixing = mixture((1.0, 1.0))
        self.tensors: dict[str, Tensor] = {}
        """What the next step depends on: the states (chains, 2, *shape), the mixtures, and the
        places of their noise levels."""

    @classmethod
    def known_to(
        cls, teacher: Prior, images: Tensor, count: int, sigma_min: float, sigma_max: float
    ) -> Visited:
        """Chains at those of the noise levels that a teacher knows."""
        low, high = max(sigma_min, teacher.sigma_min), min(sigma_max, teacher.sigma_max)
        if not 0 < low <= high:
            raise BasisError(
                f"teacher {teacher.name!r} knows noise levels from {teacher.sigma_min:g} to "
                f"{teacher.sigma_max:g}, of which none above 0 are trained"
            )
        return cls(images, max(1, count), teacher.spread, low, high)

    def states(self) -> tuple[Tensor, Tensor]:
        """Where the chains are, (2 count, channels, *size), and the noise levels, (2 count,)."""
        if not self.tensors:
            # At all noise levels at once, which takes the truth, that a separation may find too.
            place = torch.arange(self.count) * len(self.levels) // self.count
            self._begin(torch.ones(self.count, dtype=torch.bool), place, known=True)
        sigma = self.levels[self.tensors["place"]].repeat_interleave(2)
        return self.tensors["state"].flatten(0, 1), sigma

    def move(self, mean: Tensor, variance: Tensor) -> None:
        """One step of every chain, by means and variances of the clean signals at `states()`."""
        t = self.tensors
        mean, variance = (part.view_as(t["state"]) for part in (mean.cpu(), variance.cpu()))
        variance = at_least_sure(variance, self.spread)
        drawn = mean + variance.sqrt() * torch.randn(mean.shape)
        clean = self.mixing.posterior_mean(drawn, t["mixture"], variance)
        t["place"] = t["place"] + 1
        sigma = self.levels[t["place"].clamp(max=len(self.levels) - 1)]
        t["state"] = clean + per_item(sigma, clean) * torch.randn(clean.shape)
        lost = ~t["state"].flatten(1).isfinite().all(dim=1)
        self._begin(lost | (t["place"] >= len(self.levels)), torch.zeros_like(t["place"]))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back the `tensors` of an earlier run; none are those of a run that has not begun.

        Raises:
            ValueError: They are not those of as many chains of such signals.
        """
        shape = tuple(self.images.shape[1:])
        known = {"state": (self.count, 2, *shape), "mixture": (self.count, *shape)}
        known |= {"place": (self.count,)}
        if tensors and {name: tuple(t.shape) for name, t in tensors.items()} != known:
            raise ValueError("the chains of its separations have another shape")
        place = tensors.get("place", torch.zeros(1))
        if not 0 <= place.min() <= place.max() < len(self.levels):
            raise ValueError("a chain of its separations is at no noise level")
        self.tensors = dict(tensors)

    def _begin(self, ended: Tensor, place: Tensor, known: bool = False) -> None:
        """New mixtures for some chains, (count,), at these places of noise levels.

        They begin with the sources, where these shall be known, or with halves of the mixtures.
        """
        sources = as_floats(self.images[torch.randint(len(self.images), (self.count, 2))])
        mixed = self.mixing(sources)
        clean = sources if known else (mixed / 2)[:, None].expand_as(sources)
        noise = per_item(self.levels[place], clean) * torch.randn(clean.shape)
        new = {"state": clean + noise, "mixture": mixed, "place": place}
        for name, value in new.items():
            kept = self.tensors.get(name, value)
            self.tensors[name] = torch.where(per_item(ended, value).bool(), value, kept)
