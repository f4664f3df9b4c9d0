"""What a prior is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.priors.card import Card, Energies
from basis.priors.spectrum import Spectrum
from basis.tensors import as_sigmas, per_item


class Prior(nn.Module, ABC):
    """A distribution of signals that knows its score at noise level sigma.

    p_sigma is the distribution of x + sigma n, with x from the prior and n standard normal. A
    subclass says how to `denoise`; the score follows by Tweedie's formula,
    denoise(x) = x + sigma^2 score(x). A prior is an `nn.Module`: its networks and tensors move with
    `to`, and `separate` runs it in evaluation mode.

    Args:
        shape: (channels, *size) of one signal, of any rank.
        sigma_min, sigma_max: The range of noise levels that it can answer for.
        name: What records and panels call it.
        low, high: Bounds of the signals' values; None where there is none.
        center: A typical value; the middle of the range, or 0, by default.
        spread: About the standard deviation of a value, the unit of noise levels. By default 0.3 of
            the range, or 1 without one.
        errors: Held-out squared denoising error / sigma^2 by sigma, where it was measured: the
            variance that `moments` answers with where the prior has learned none.
        card: What is known of it (data, training, quality, licence, typical energies).

    Its attribute `energies` is the distribution that the plausibility of results is told by: the
    card's, None where there is none, or what `basis.search.measure_energies` measured. Its
    attribute `spectrum` says in the same way how values move together (`measure_spectrum`).
    """

    cost: int = 1
    """Evaluations that one score counts for; a pass back through a network counts as two more."""

    log_prob_cost: int = 1
    """Evaluations that one log p counts for, in a prior that has one."""

    def __init__(
        self,
        shape: tuple[int, ...],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "prior",
        low: float | None = None,
        high: float | None = None,
        center: float | None = None,
        spread: float | None = None,
        errors: Mapping[float, float] | None = None,
        card: Card | None = None,
    ) -> None:
        super().__init__()
        self.shape = _check_shape(shape)
        if not 0 <= sigma_min <= sigma_max:
            raise BasisError(
                f"noise levels must be 0 <= sigma_min <= sigma_max, not {sigma_min}, {sigma_max}"
            )
        if low is not None and high is not None and not low < high:
            raise BasisError(f"low must be less than high, not {low} and {high}")
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)
        self.name = name
        self.low = None if low is None else float(low)
        self.high = None if high is None else float(high)
        bounded = self.low is not None and self.high is not None
        self.center = _middle(self.low, self.high) if center is None else float(center)
        if spread is None:
            spread = 0.3 * (self.high - self.low) if bounded else 1.0  # type: ignore[operator]
        if not (math.isfinite(spread) and spread > 0):
            raise BasisError(f"spread must be a positive number, not {spread}")
        self.spread = float(spread)
        self.errors = {float(s): float(e) for s, e in (errors or {}).items()}
        self.card = card
        told = None if card is None else card.energies
        self.energies = None if told is None else Energies.from_dict(told, f"the card of {name}")
        self.spectrum = _spectrum_of(card, self.shape, name)

    def __repr__(self) -> str:
        values = f"{_bound(self.low, '-inf')} to {_bound(self.high, 'inf')}"
        shape = "x".join(map(str, self.shape))
        return (
            f"{type(self).__name__}({self.name!r}, {shape}, values {values}, "
            f"sigma {self.sigma_min:g} to {self.sigma_max:g})"
        )

    @property
    def traits(self) -> dict[str, Any]:
        """What a prior of the same signals is made with: range, center, spread, errors, card."""
        return {
            "low": self.low,
            "high": self.high,
            "center": self.center,
            "spread": self.spread,
            "errors": self.errors,
            "card": self.card,
        }

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """E[clean | noisy = x].

        Shapes:
            x: (batch, channels, *size), float32 or float64; the answer has its precision.
            sigma: A number, or (batch,).
        """

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; shapes as in `denoise`.

        Few-step samplers weigh sources against each other by this variance. A prior that knows no
        better answers with its measured `errors`, or as a Gaussian of variance spread^2 would,
        alike everywhere.
        """
        s = as_sigmas(sigma, x)
        if self.errors:
            level = [interpolate(self.errors, one) * one**2 for one in s.tolist()]
            variance = torch.tensor(level, dtype=x.dtype, device=x.device)
        else:
            variance = s.square() * self.spread**2 / (s.square() + self.spread**2)
        return self.denoise(x, sigma), per_item(variance, x).expand(x.shape)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """grad log p_sigma(x); shapes as in `denoise`."""
        return (self.denoise(x, sigma) - x) / per_item(sigma, x).square()

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """log p_sigma(x), (batch,), for priors that have a likelihood."""
        raise BasisError(
            f"prior {self.name!r} has no likelihood: log_prob needs a prior with a density "
            "(basis.priors.FlowLikelihood gives one to a score prior, at many evaluations)"
        )

    def check_signals(self, signals: Tensor) -> None:
        """Refuses signals of another shape than its own, (n, *shape); ask before long work."""
        if tuple(signals.shape[1:]) != self.shape:
            raise BasisError(
                f"prior {self.name!r} is of signals of shape {self.shape}, not "
                f"{tuple(signals.shape[1:])}; give data of its kind"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that `given` takes; none where the prior cannot be told any."""
        return ()

    def given(self, *classes: str | int) -> Prior:
        """The prior of signals that are of one of these classes, each as likely as the others.

        Args:
            classes: Names from `classes`, or their numbers.
        """
        raise BasisError(
            f"prior {self.name!r} was not trained to be told classes; mnist-classes and cifar10 "
            "were, and basis train --conditional makes one that is"
        )

    @property
    def has_likelihood(self) -> bool:
        """Whether `log_prob` answers."""
        return type(self).log_prob is not Prior.log_prob

    @property
    def tile_cost(self) -> int:
        """What one score counts for in the budget of an effort: of tiles, that of one tile."""
        return self.cost

    @property
    def likelihood_sigma(self) -> float:
        """The noise level at which log p tells good clean signals from bad ones: the smallest."""
        return self.sigma_min

    @property
    def unled(self) -> Prior:
        """This prior before it was led away from another one (`Guided`): itself where it was not.

        What is judged by a prior's typical energies is judged by this one.
        """
        return self

    @property
    def turn_spreads(self) -> float:
        """Down to which noise level, in spreads, `gibbs` draws by mean and variance, before it
        follows the score alone.
        """
        return 7 / 6

    @property
    def device(self) -> torch.device | None:
        """Where it computes, or None when it follows its input."""
        tensor = next(self.parameters(), next(self.buffers(), None))
        return None if tensor is None else tensor.device

    def describe(self) -> dict[str, Any]:
        """What a run's record says of its prior."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "sigma_min": self.sigma_min,
            "sigma_max": self.sigma_max,
            "low": self.low,
            "high": self.high,
            "spread": self.spread,
        }


def _spectrum_of(card: Card | None, shape: tuple[int, ...], name: str) -> Spectrum | None:
    """The spectrum that a card holds, where it is of signals with these channels."""
    if card is None or card.spectrum is None:
        return None
    found = Spectrum.from_dict(card.spectrum, f"the card of {name}")
    if found.channels != shape[0]:
        raise BasisError(
            f"the card of {name}: its spectrum is of {found.channels} channels, and its signals "
            f"have {shape[0]}"
        )
    return found


def interpolate(curve: Mapping[float, float], sigma: float) -> float:
    """A positive curve over sigma, straight between its points on logarithmic axes.

    It is level beyond its ends.
    """
    known = sorted(curve)
    if not known[0] < sigma < known[-1]:
        return curve[min(known, key=lambda s: abs(math.log(s / sigma)))]
    above = next(i for i, s in enumerate(known) if s >= sigma)
    low, high = known[above - 1], known[above]
    share = math.log(sigma / low) / math.log(high / low)
    return curve[low] ** (1 - share) * curve[high] ** share


def _check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        sides = tuple(int(side) for side in shape)
    except (TypeError, ValueError) as error:
        raise BasisError(f"shape must be (channels, *size), not {shape!r}") from error
    if len(sides) < 1 or any(side < 1 for side in sides):
        raise BasisError(f"shape must be (channels, *size) with sides of 1 or more, not {sides}")
    return sides


def _middle(low: float | None, high: float | None) -> float:
    if low is not None and high is not None:
        return (low + high) / 2
    return 0.0 if low is None and high is None else float(low if low is not None else high or 0.0)


def _bound(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:g}"


class Derived(Prior):
    """A prior that takes what it does not change from another one: range, spread, card, energies.

    Args:
        prior: The other one.
        shape: (channels, *size) of one signal; the other's by default.
    """

    def __init__(self, prior: Prior, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(
            prior.shape if shape is None else shape,
            prior.sigma_min,
            prior.sigma_max,
            name=prior.name,
            **prior.traits,
        )
        self.prior, self.cost = prior, prior.cost
        self.energies, self.spectrum = prior.energies, prior.spectrum

    @property
    def tile_cost(self) -> int:
        return self.prior.tile_cost

    @property
    def turn_spreads(self) -> float:
        return self.prior.turn_spreads
