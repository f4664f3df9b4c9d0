"""The interface of mixings: a linear map with an adjoint, a mask and observation noise."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.conditioning import Correlated, conjugate_gradients
from basis.tensors import Bound, clamp

if TYPE_CHECKING:
    from basis.mixings.limited import Limited


Bounds = tuple[float | None, float | None]
"""The bounds of values; None where there is no bound."""


def as_numbers(values: Any) -> Tensor:
    """Numbers as float64 on the CPU: from tensors, arrays of any strides, or lists of either."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64)
    if isinstance(values, list | tuple):
        values = [
            as_numbers(v).tolist() if isinstance(v, Tensor | np.ndarray) else v for v in values
        ]
    return torch.from_numpy(np.array(values, dtype=np.float64))


def check_sources(x: Tensor, sources: int) -> None:
    """Raises for anything but sources (batch, sources, channels, ...) of floats."""
    if not isinstance(x, Tensor):
        raise BasisError(f"sources must be a tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise BasisError(f"sources must be floats, not {kind}: divide 8-bit pixels by 255")
    if x.ndim < 3 or x.shape[1] != sources:
        raise BasisError(f"sources must be (batch, {sources}, channels, ...), not {tuple(x.shape)}")


def as_alphas(alphas: Any) -> Tensor:
    """Mixing coefficients as a float64 vector."""
    try:
        values = as_numbers(alphas)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(f"alphas must be a list of numbers, one per source: {error}") from error
    if values.ndim != 1 or not len(values) or not torch.isfinite(values).all():
        raise BasisError("alphas must be a non-empty list of finite numbers, one per source")
    return values


def linear_range(coefficients: Tensor, value_range: Bounds) -> Bounds:
    """The range of sums, with these coefficients (outputs, terms), of values in a range."""
    low, high = value_range
    positive = coefficients.clamp(min=0).sum(dim=1)
    negative = coefficients.clamp(max=0).sum(dim=1)

    def scaled(sums: Tensor, bound: float | None) -> Tensor:
        return torch.where(sums == 0, 0.0, math.nan) if bound is None else sums * bound

    least = (scaled(positive, low) + scaled(negative, high)).min().item()
    largest = (scaled(positive, high) + scaled(negative, low)).max().item()
    return None if math.isnan(least) else least, None if math.isnan(largest) else largest


def _as_mask(mask: Any) -> Tensor:
    try:
        values = as_numbers(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(
            "mask must be an array of zeros (not observed) and ones (observed), not "
            f"{type(mask).__name__}"
        ) from error
    if not ((values == 0) | (values == 1)).all():
        raise BasisError("mask must hold only zeros (not observed) and ones (observed)")
    return values


Self = TypeVar("Self", bound="Mixing")
_KEEP: Any = object()
_PROBES = 32  # random signals that estimate the diagonal of an unknown map


class Mixing(ABC):
    """m = mask * (A x) + noise, with A linear in the k sources x.

    A subclass defines A as `forward`, its adjoint as `transpose` and the shape of an observation.
    Everything that samplers need follows from these. `posterior_mean` uses conjugate gradients
    unless the subclass sets `diagonal` and defines `gram_diagonal`, or has another closed form.

    Attributes:
        sources: The number of sources k.
        noise: Standard deviation tau of Gaussian noise on the observation; 0 for an exact one.
        mask: Ones where m was observed, zeros where not, or None; broadcasts to one observation.
        diagonal: Whether A V A^T is diagonal for every diagonal V.

    Shapes:
        x: (batch, sources, channels, *size), the sources.
        m: (batch, *observed_shape((channels, *size))), the observation.
    """

    diagonal: bool = False

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self.noise = 0.0
        self.mask: Tensor | None = None

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """A x, everywhere and without noise."""

    @abstractmethod
    def transpose(self, m: Tensor) -> Tensor:
        """A^T m, the adjoint of `forward`."""

    @abstractmethod
    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one observation of sources of this shape; raises if they do not fit."""

    def fit(self: Self, shape: tuple[int, ...]) -> Self:
        """The mixing for sources of this shape, (channels, *size); raises if they do not fit."""
        observed = self.observed_shape(shape)
        if self.mask is not None:
            try:
                fits = torch.broadcast_shapes(self.mask.shape, observed) == observed
            except RuntimeError:
                fits = False
            if not fits:
                raise self._mask_error(observed)
        return self

    def select(self, index: Tensor | slice) -> Mixing:
        """The mixing of some items of a batch; itself if all items are mixed alike."""
        return self

    def output_range(self, value_range: Bounds) -> Bounds:
        """The smallest and largest value of A x for sources in this range; None: no bound."""
        return None, None

    @property
    def interchangeable(self) -> Tensor:
        """Which sources could be swapped without changing m: (sources, sources) of bool."""
        return torch.eye(self.sources, dtype=torch.bool)

    @property
    def plain_alphas(self) -> list[float] | None:
        """The alphas if this is a plain sum of alpha_i x_i without mask, else None."""
        return None

    def describe(self) -> dict[str, Any]:
        """The mixing as records of runs store it."""
        return {
            "kind": type(self).__name__,
            "sources": self.sources,
            "noise": self.noise,
            "masked": self.mask is not None,
        }

    def summary(self) -> str:
        """A few words for the repr that distinguish this mixing from others of its kind."""
        return ""

    def __repr__(self) -> str:
        parts = [f"{self.sources} source{'s' if self.sources != 1 else ''}", self.summary()]
        parts += [f"noise {self.noise:g}" if self.noise else "", "masked" * (self.mask is not None)]
        return f"{type(self).__name__}({', '.join(part for part in parts if part)})"

    def replace(self: Self, *, mask: Any = _KEEP, noise: Any = _KEEP) -> Self:
        """The same mixing with another mask or another observation noise.

        Args:
            mask: Ones where m is observed and zeros where not, as a tensor or an array that
                broadcasts to one observation; None: observed everywhere.
            noise: Standard deviation of Gaussian noise on the observation; 0 for an exact one.
        """
        changes: dict[str, Any] = {}
        if mask is not _KEEP:
            changes["mask"] = None if mask is None else _as_mask(mask)
        if noise is not _KEEP:
            valid = isinstance(noise, int | float) and math.isfinite(noise) and noise >= 0
            if not valid or isinstance(noise, bool):
                raise BasisError(f"noise must be a number of at least 0, not {noise!r}")
            changes["noise"] = float(noise)
        return self._with(**changes)

    def clipped(self, low: float | None = None, high: float | None = 1.0) -> Limited:
        """The same mixing with clipped values: an observed bound means `at most` or `at least`.

        Args:
            low: The smallest value that can be stored, if the sum can be below it; None: no bound.
                Sums of pictures with positive alphas are never below 0, so that 0 is exact there.
            high: The largest value that can be stored; None: no bound.
        """
        from basis.mixings.limited import Limited

        return Limited(self, low, high)

    def rounded(self, step: float = 1 / 255) -> Limited:
        """The same mixing with values rounded to multiples of a step; 8 bits by default."""
        from basis.mixings.limited import Limited

        return Limited(self, step=step)

    @property
    def unlimited(self) -> Mixing:
        """The linear mixing without limits; itself if it has none."""
        return self

    @property
    def limited(self) -> bool:
        """Whether values are clipped or rounded, so that m is not A x."""
        return False

    def __call__(self, x: Tensor) -> Tensor:
        """A x without noise, zero where masked."""
        check_sources(x, self.sources)
        return self.observe(self.forward(x))

    def adjoint(self, m: Tensor) -> Tensor:
        """A^T (mask * m), (batch, sources, channels, *size)."""
        return self.transpose(self.observe(m))

    def observe(self, m: Tensor) -> Tensor:
        """m where it is observed, zero elsewhere."""
        if self.mask is None:
            return m
        try:
            return m * self.mask.to(m)
        except RuntimeError as error:
            raise self._mask_error(tuple(m.shape[1:])) from error

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        """m - A x where observed, zero elsewhere."""
        return self.observe(m) - self(x)

    def likelihood_residual(self, x: Tensor, m: Tensor, std: float) -> Tensor:
        """std^2 times the gradient of log p(m | A x) with respect to A x, for noise of this std.

        Without limits this is m - A x, with limits E[m before the limits] - A x.
        """
        return self.residual(x, m)

    def gaussian_likelihood(
        self, x: Tensor, m: Tensor, std: Tensor | float
    ) -> tuple[Tensor, Tensor | float]:
        """The observation and the std of a Gaussian likelihood equivalent to log p(m | A x) at x.

        Its gradient and its curvature at x are those of the likelihood with noise of this std.
        Without limits these are m and std.
        """
        return m, std

    def sample_unlimited(self, m: Tensor, mean: Tensor, std: Tensor, normal: Tensor) -> Tensor:
        """A draw of the observation before the limits, N(mean, std^2) given m, from noise."""
        return m

    def output_std(
        self, x: Tensor, variance: Tensor | float, noise: Tensor | float | None = None
    ) -> Tensor:
        """Standard deviation of each value of A x + noise for x of variance V."""
        tau2 = (self.noise if noise is None else noise) ** 2
        diagonal = self.estimated_gram_diagonal(x, variance)
        return (diagonal + tau2).clamp_min(torch.finfo(x.dtype).tiny).sqrt()

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        """x + V A^T (A V A^T + tau^2)^-1 (m - A x): the mean of N(x, V) given the observation m.

        Args:
            x: Means, (batch, sources, channels, *size).
            m: The observation.
            variance: The diagonal V: a number, or a tensor that broadcasts to x.
            noise: tau, a number or a tensor that broadcasts to m; the mixing's own by default.
        """
        tau2 = (self.noise if noise is None else noise) ** 2
        gram, residual = self.gram_diagonal(x, variance), self.residual(x, m)
        if self.diagonal and gram is not None:
            # Where nothing is observed the residual is zero.
            z = residual / (gram + tau2).clamp_min(torch.finfo(x.dtype).tiny)
            return x + variance * self.adjoint(z)

        def apply(z: Tensor) -> Tensor:
            return self(variance * self.adjoint(z)) + tau2 * z

        if gram is None:
            z = conjugate_gradients(apply, residual)
        else:
            scale = self.observe(gram) + tau2
            inverse = torch.where(scale > 0, 1 / scale.clamp_min(1e-30), 0.0)
            z = conjugate_gradients(apply, residual, lambda r: r * inverse)
        return x + variance * self.adjoint(z)

    def correlated(self, std: Tensor, frequencies: Tensor) -> Correlated | None:
        """The covariance of sources with correlated values; None if this is not supported.

        Args:
            std: Standard deviations, (batch, sources, channels, *size).
            frequencies: Variance of each frequency in units of the variance of independent values,
                (sources, channels, *size).
        """
        return None

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor | None:
        """The diagonal of A V A^T without mask, which broadcasts to m; None if it is not known."""
        return None

    def estimated_gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        """The diagonal of A V A^T: known, or estimated from random signs."""
        diagonal = self.gram_diagonal(x, variance)
        if diagonal is not None:
            return diagonal
        generator = torch.Generator().manual_seed(0)
        root = torch.as_tensor(variance).to(x).sqrt()
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for _ in range(_PROBES):
            signs = torch.randint(2, x.shape[1:], generator=generator) * 2 - 1
            total = total + self.forward((root * signs.to(x)).expand(x.shape)).square()
        return total / _PROBES

    def gain(self, x: Tensor) -> Tensor | float:
        """The root-mean-square weight of a source in an observed value: 1 for a plain sum.

        A number if all items are mixed alike, else a tensor that broadcasts to the observation.
        """
        squares = self.estimated_gram_diagonal(x, 1.0)
        seen = self.observe(torch.ones_like(squares)).expand_as(self.observe(squares))
        axes = tuple(range(1, squares.ndim))
        mean = (seen * squares).sum(dim=axes, keepdim=True) / seen.sum(dim=axes, keepdim=True)
        gain = (mean / self.sources).sqrt()
        return gain if (gain != gain[:1]).any() else gain[:1].item()

    def project(self, x: Tensor, m: Tensor) -> Tensor:
        """The point closest to x that reproduces m (in the least-squares sense if none does)."""
        return self.posterior_mean(x, m, noise=0.0)

    def project_box(
        self,
        x: Tensor,
        m: Tensor,
        low: Bound = 0.0,
        high: Bound = 1.0,
        *,
        tolerance: float = 1e-4,
        max_iterations: int = 100,
    ) -> Tensor:
        """A point near x between low and high that reproduces m, by alternating projections.

        Args:
            x: Sources, (batch, sources, channels, *size).
            m: The observation.
            low, high: Bounds of the sources: numbers, tensors that broadcast to x, or None.
            tolerance: Root-mean-square residual of an item to stop at.
            max_iterations: Iterations after which items keep a residual; no sources within the
                bounds may reproduce m.
        """
        x = clamp(x, low, high)
        for _ in range(max_iterations):
            off = self.residual(x, m).flatten(1).square().mean(dim=1).sqrt() >= tolerance
            if not off.any():
                break
            # Items that have converged stay as they are, so that no item depends on its batch.
            moved = clamp(self.project(x, m), low, high)
            x = torch.where(off.view(-1, *[1] * (x.ndim - 1)), moved, x)
        return x

    def _mask_error(self, observed: tuple[int, ...]) -> BasisError:
        assert self.mask is not None
        return BasisError(
            f"the mask has shape {tuple(self.mask.shape)}; it must broadcast to {observed}, the "
            "shape of an observation"
        )

    def _with(self: Self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other
