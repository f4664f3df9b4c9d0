"""What a prior is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor

from basis._errors import BasisError
from basis._tensors import per_item

P = TypeVar("P", bound="Prior")


class Prior(ABC):
    """A distribution of images in [0, 1] that knows its score at noise level sigma.

    p_sigma is the distribution of x + sigma n, with x from the prior and n standard normal. A subclass says how
    to `denoise`; the score follows by Tweedie's formula, denoise(x) = x + sigma^2 score(x).

    Attributes:
        shape: (channels, height, width) of one image.
        sigma_min, sigma_max: The range of noise levels that it can answer for.
        name: What records and panels call it.
        cost: Evaluations that one score counts for; a pass back through a network counts as two more.
        spread: About the standard deviation of a pixel, for priors that cannot say how sure they are.
        card: What is known of it (data, training, quality, licence), for records.
    """

    shape: tuple[int, ...]
    sigma_min: float
    sigma_max: float
    name: str = "prior"
    cost: int = 1
    spread: float = 0.3
    card: Any = None
    low: float | None = 0.0
    high: float | None = 1.0
    center: float | None = None
    errors: Mapping[float, float] = MappingProxyType({})

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """E[clean | noisy = x].

        Shapes:
            x: (batch, channels, height, width), float32 or float64; the answer has its precision.
            sigma: A number, or (batch,).
        """

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean pixel given the noisy image; shapes as in `denoise`.

        Few-step samplers weigh sources against each other by this variance. A prior that knows no better answers with
        the error that its card says was measured on held-out images, or as a Gaussian of variance spread^2 would,
        alike at every pixel.
        """
        s = as_sigmas(sigma, x)
        errors = self._errors
        if errors:
            level = [interpolate(errors, one) * one**2 for one in s.tolist()]
            variance = torch.tensor(level, dtype=x.dtype, device=x.device)
        else:
            variance = s.square() * self.spread**2 / (s.square() + self.spread**2)
        return self.denoise(x, sigma), per_item(variance, x).expand(x.shape)

    @property
    def _errors(self) -> dict[float, float]:
        """Held-out squared error / sigma^2 by sigma, from the card."""
        return dict(self.errors)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """grad log p_sigma(x); shapes as in `denoise`."""
        s = per_item(sigma, x)
        return (self.denoise(x, sigma) - x) / s.square()

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """log p_sigma(x), (batch,), for priors that have a likelihood."""
        raise BasisError(
            f"prior {self.name!r} has no likelihood: log_prob needs a prior with a density "
            "(score priors rank samples by their denoising error instead)"
        )

    @property
    def has_likelihood(self) -> bool:
        """Whether `log_prob` answers."""
        return type(self).log_prob is not Prior.log_prob

    def to(self: P, device: torch.device | str | None = None, dtype: Any = None) -> P:
        """Moves the prior; returns itself."""
        return self

    @property
    def device(self) -> torch.device | None:
        """Where it computes, or None when it follows its input."""
        return None

    def describe(self) -> dict[str, Any]:
        """What a run's record says of its prior."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "sigma_min": self.sigma_min,
            "sigma_max": self.sigma_max,
        }


def as_sigmas(sigma: Tensor | float, x: Tensor) -> Tensor:
    """sigma as one number per item of x, in x's precision and place."""
    s = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return s.expand(x.shape[0]) if s.ndim == 0 else s


def interpolate(curve: dict[float, float], sigma: float) -> float:
    """A positive curve over sigma, straight between its points on logarithmic axes and level beyond them."""
    known = sorted(curve)
    if not known[0] < sigma < known[-1]:
        return curve[min(known, key=lambda s: abs(math.log(s / sigma)))]
    above = next(i for i, s in enumerate(known) if s >= sigma)
    low, high = known[above - 1], known[above]
    share = math.log(sigma / low) / math.log(high / low)
    return curve[low] ** (1 - share) * curve[high] ** share
