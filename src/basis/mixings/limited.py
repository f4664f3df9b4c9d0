"""Mixtures whose values were cut off or rounded: pictures of sums, and 8-bit steps.

A pixel that is saturated says no more than that the sum was at least so bright, and one of an 8-bit
picture no more than that it was nearer to this step than to any other. What is known of A x is an
interval, and the value before it was cut off is one more unknown: a Gaussian in that interval.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.conditioning import truncated_mean, truncated_sample, truncated_variance
from basis.mixings.mixing import Mixing

_SAME = 1e-6  # values that near to a limit, in shares of it, are at it
_LOOSE = 1e-6  # the least weight of an observation that tells nothing


class Limited(Mixing):
    """m = round(clip(A x + noise)): a linear mixing seen through limits.

    Made by `mixing.clipped()` and `mixing.rounded()`.

    Args:
        exact: The linear mixing, A.
        low, high: Where values are cut off; None: not at all.
        step: The distance of the values that m is rounded to; 0: not rounded.
    """

    def __init__(
        self,
        exact: Mixing,
        low: float | None = None,
        high: float | None = None,
        step: float = 0.0,
    ) -> None:
        super().__init__(exact.sources)
        for bound in (low, high):
            if bound is not None and not math.isfinite(bound):
                raise BasisError(f"limits must be finite numbers or None, not {bound}")
        if low is not None and high is not None and not low < high:
            raise BasisError(f"the lower limit must be less than the upper, not {low} and {high}")
        if not (math.isfinite(step) and step >= 0):
            raise BasisError(f"the step of rounding must be a number above 0, not {step}")
        self._exact = exact
        self.low, self.high, self.step = low, high, step
        self.noise, self.mask = exact.noise, exact.mask

    @property
    def unlimited(self) -> Mixing:
        return self._exact

    @property
    def limited(self) -> bool:
        return True

    def forward(self, x: Tensor) -> Tensor:
        return self.unlimited.forward(x)

    def transpose(self, m: Tensor) -> Tensor:
        return self.unlimited.transpose(m)

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.unlimited.observed_shape(shape)

    def fit(self, shape: tuple[int, ...]) -> Limited:
        return self._around(self.unlimited.fit(shape))

    def select(self, index: Tensor | slice) -> Limited:
        return Limited(self.unlimited.select(index), self.low, self.high, self.step)

    def output_range(
        self, low: float | None, high: float | None
    ) -> tuple[float | None, float | None]:
        return self.unlimited.output_range(low, high)

    @property
    def interchangeable(self) -> Tensor:
        return self.unlimited.interchangeable

    def clipped(self, low: float | None = None, high: float | None = 1.0) -> Limited:
        return Limited(self.unlimited, low, high, self.step)

    def rounded(self, step: float = 1 / 255) -> Limited:
        return Limited(self.unlimited, self.low, self.high, step)

    def describe(self) -> dict[str, Any]:
        limits = {"clipped": [self.low, self.high], "rounded": self.step}
        return self.unlimited.describe() | limits

    def __repr__(self) -> str:
        told = []
        if self.low is not None or self.high is not None:
            ends = ["" if e is None else f"{e:g}" for e in (self.low, self.high)]
            told.append(f"clipped to {ends[0]}..{ends[1]}")
        if self.step:
            told.append(f"rounded to steps of {self.step:.3g}")
        return f"{self.unlimited!r}, {', '.join(told)}" if told else repr(self.unlimited)

    def __call__(self, x: Tensor) -> Tensor:
        """What is observed of the sources: A x, cut off and rounded; zero where masked."""
        m = self.unlimited(x)
        if self.low is not None or self.high is not None:
            m = m.clamp(self.low, self.high)
        if self.step:
            m = (m / self.step).round() * self.step
        return self.observe(m)

    def adjoint(self, m: Tensor) -> Tensor:
        return self.unlimited.adjoint(m)

    def bounds(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """Between what A x (and its noise) lies where m was observed; infinite where cut off."""
        half = self.step / 2
        lower, upper = m - half, m + half
        if self.high is not None:
            cut = m >= self.high - half - _SAME * max(1.0, abs(self.high))
            lower = torch.where(cut, self.high - half, lower)
            upper = torch.where(cut, math.inf, upper)
        if self.low is not None:
            cut = m <= self.low + half + _SAME * max(1.0, abs(self.low))
            lower = torch.where(cut, -math.inf, lower)
            upper = torch.where(cut, self.low + half, upper)
        return lower, upper

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        """How far A x is from what m allows, zero inside; the sign is that of m - A x."""
        made = self.unlimited(x)
        lower, upper = self.bounds(m)
        return self.observe(made.clamp(lower, upper) - made)

    def likelihood_residual(self, x: Tensor, m: Tensor, std: float) -> Tensor:
        made = self.unlimited(x)
        expected = truncated_mean(made, torch.as_tensor(std).to(made), *self.bounds(m))
        return self.observe(expected - made)

    def gaussian_likelihood(
        self, x: Tensor, m: Tensor, std: Tensor | float
    ) -> tuple[Tensor, Tensor | float]:
        made, ends = self.unlimited(x), self.bounds(m)
        width = torch.as_tensor(std).to(made)
        tells = (1 - truncated_variance(made, width, *ends)).clamp_min(_LOOSE)
        target = made + (truncated_mean(made, width, *ends) - made) / tells
        return target, std / tells.sqrt()

    def gain(self, x: Tensor) -> Tensor | float:
        return self.unlimited.gain(x)

    def sample_unlimited(self, m: Tensor, mean: Tensor, std: Tensor, normal: Tensor) -> Tensor:
        return truncated_sample(mean, std, *self.bounds(m), normal)

    def output_std(
        self, x: Tensor, variance: Tensor | float, noise: Tensor | float | None = None
    ) -> Tensor:
        tau2 = (self.noise if noise is None else noise) ** 2
        diagonal = self.unlimited.estimated_gram_diagonal(x, variance)
        return (diagonal + tau2).clamp_min(torch.finfo(x.dtype).tiny).sqrt()

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        """The mean of N(x, V) given that A x lies in what m allows.

        Right where A V A^T is diagonal, as for plain mixtures; elsewhere each value is taken for
        itself.
        """
        std = self.output_std(x, variance, noise)
        expected = truncated_mean(self.unlimited(x), std, *self.bounds(m))
        return self.unlimited.posterior_mean(x, expected, variance, noise)

    def project(self, x: Tensor, m: Tensor) -> Tensor:
        lower, upper = self.bounds(m)
        return self.unlimited.project(x, self.unlimited(x).clamp(lower, upper))

    def _around(self, exact: Mixing) -> Limited:
        return Limited(exact, self.low, self.high, self.step)

    def _with(self, **changes: Any) -> Limited:
        return self._around(self.unlimited._with(**changes))
