"""Mixings whose values are clipped or rounded: pictures of sums, and 8-bit steps.

A saturated pixel says that the sum was at least that bright, and a pixel of an 8-bit picture that
the sum was within half a step of its value. What is known about A x is an interval, and the value
before the limits is one more unknown: a Gaussian restricted to that interval.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.conditioning import truncated_mean, truncated_sample, truncated_variance
from basis.mixings.mixing import Bounds, Mixing

_RELATIVE = 1e-6  # values within this relative distance of a bound are clipped ones
_LEAST_INFORMATION = 1e-6  # the least weight of an observation without information


class Limited(Mixing):
    """m = round(clip(A x + noise)): a linear mixing with limits.

    Made by `mixing.clipped()` and `mixing.rounded()`.

    Args:
        unlimited: The linear mixing, A.
        low, high: Bounds to which values are clipped; None: no bound.
        step: The distance of the values that m is rounded to; 0: not rounded.
    """

    def __init__(
        self,
        unlimited: Mixing,
        low: float | None = None,
        high: float | None = None,
        step: float = 0.0,
    ) -> None:
        super().__init__(unlimited.sources)
        for bound in (low, high):
            if bound is not None and not math.isfinite(bound):
                raise BasisError(f"limits must be finite numbers or None, not {bound}")
        if low is not None and high is not None and not low < high:
            raise BasisError(f"the lower limit must be less than the upper, not {low} and {high}")
        if not (math.isfinite(step) and step >= 0):
            raise BasisError(f"step must be a number of at least 0, not {step}")
        self._unlimited = unlimited
        self.low, self.high, self.step = low, high, step
        self.noise, self.mask = unlimited.noise, unlimited.mask

    @property
    def unlimited(self) -> Mixing:
        return self._unlimited

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
        return self._around(self.unlimited.select(index))

    def output_range(self, value_range: Bounds) -> Bounds:
        return self.unlimited.output_range(value_range)

    @property
    def interchangeable(self) -> Tensor:
        return self.unlimited.interchangeable

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor | None:
        return self.unlimited.gram_diagonal(x, variance)

    def clipped(self, low: float | None = None, high: float | None = 1.0) -> Limited:
        return Limited(self.unlimited, low, high, self.step)

    def rounded(self, step: float = 1 / 255) -> Limited:
        return Limited(self.unlimited, self.low, self.high, step)

    def describe(self) -> dict[str, Any]:
        limits = {"clipped": [self.low, self.high], "rounded": self.step}
        return self.unlimited.describe() | limits

    def __repr__(self) -> str:
        parts = [repr(self.unlimited)]
        if self.low is not None or self.high is not None:
            ends = ["" if end is None else f"{end:g}" for end in (self.low, self.high)]
            parts.append(f"clipped to {ends[0]}..{ends[1]}")
        if self.step:
            parts.append(f"rounded to steps of {self.step:.3g}")
        return ", ".join(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """A x, clipped and rounded; zero where masked."""
        m = self.unlimited(x)
        if self.low is not None or self.high is not None:
            m = m.clamp(self.low, self.high)
        if self.step:
            m = (m / self.step).round() * self.step
        return self.observe(m)

    def bounds(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """The interval of A x + noise for each observed value; infinite where it is clipped."""
        half = self.step / 2
        lower, upper = m - half, m + half
        if self.high is not None:
            cut = m >= self.high - half - _RELATIVE * max(1.0, abs(self.high))
            lower = torch.where(cut, self.high - half, lower)
            upper = torch.where(cut, math.inf, upper)
        if self.low is not None:
            cut = m <= self.low + half + _RELATIVE * max(1.0, abs(self.low))
            lower = torch.where(cut, -math.inf, lower)
            upper = torch.where(cut, self.low + half, upper)
        return lower, upper

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        """The distance of A x to the interval that m allows, with the sign of m - A x."""
        output = self.unlimited(x)
        lower, upper = self.bounds(m)
        return self.observe(output.clamp(lower, upper) - output)

    def likelihood_residual(self, x: Tensor, m: Tensor, std: float) -> Tensor:
        output = self.unlimited(x)
        expected = truncated_mean(output, torch.as_tensor(std).to(output), *self.bounds(m))
        return self.observe(expected - output)

    def gaussian_likelihood(
        self, x: Tensor, m: Tensor, std: Tensor | float
    ) -> tuple[Tensor, Tensor | float]:
        output, bounds = self.unlimited(x), self.bounds(m)
        width = torch.as_tensor(std).to(output)
        information = 1 - truncated_variance(output, width, *bounds)
        information = information.clamp_min(_LEAST_INFORMATION)
        target = output + (truncated_mean(output, width, *bounds) - output) / information
        return target, std / information.sqrt()

    def sample_unlimited(self, m: Tensor, mean: Tensor, std: Tensor, normal: Tensor) -> Tensor:
        return truncated_sample(mean, std, *self.bounds(m), normal)

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        """The mean of N(x, V) given that A x + noise lies in the interval that m allows.

        Exact if A V A^T is diagonal, as for plain mixtures; otherwise observed values are treated
        as independent.
        """
        std = self.output_std(x, variance, noise)
        expected = truncated_mean(self.unlimited(x), std, *self.bounds(m))
        return self.unlimited.posterior_mean(x, expected, variance, noise)

    def project(self, x: Tensor, m: Tensor) -> Tensor:
        return self.unlimited.project(x, self.unlimited(x).clamp(*self.bounds(m)))

    def _around(self, unlimited: Mixing) -> Limited:
        return Limited(unlimited, self.low, self.high, self.step)

    def _with(self, **changes: Any) -> Limited:
        return self._around(self.unlimited._with(**changes))
