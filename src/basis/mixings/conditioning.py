"""Conditional Gaussians: conjugate gradients, correlated values, truncated values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.special import ndtri

from basis.tensors import dct, dct_matrix, idct, per_item

if TYPE_CHECKING:
    from basis.mixings.matrix import MatrixMixing

_TOLERANCE = 1e-5  # relative residual of `Correlated`, too small for visible differences
_MAX_ITERATIONS = 8  # leave at most a hundredth to the closed form for independent values
_NARROW = 1e-3  # intervals of fewer standard deviations are treated as points
_FAR = 38.0  # standard deviations beyond which the tail underflows in double precision


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor] = lambda r: r,
    *,
    tolerance: float | None = None,
    max_iterations: int = 500,
) -> Tensor:
    """Solves apply(z) = b for a positive semi-definite map, separately for each item of the batch.

    An item that has converged is not changed any more, so that no item depends on its batch.

    Args:
        apply: The map, (batch, ...) to (batch, ...).
        b: The right-hand side, (batch, ...); for a singular map it must lie in its range.
        precondition: An approximate inverse of the map.
        tolerance: Relative size of the residual to stop at; by default what the dtype allows.
        max_iterations: The largest number of iterations.
    """
    if tolerance is None:
        tolerance = 1e-6 if b.dtype == torch.float32 else 1e-11

    def dot(a: Tensor, c: Tensor) -> Tensor:
        return (a.double() * c.double()).flatten(1).sum(dim=1)

    z, r = torch.zeros_like(b), b.clone()
    p = y = precondition(r)
    goal = tolerance**2 * dot(b, b)
    rho = dot(r, y)
    for _ in range(max_iterations):
        q = apply(p)
        curvature = dot(p, q)
        active = (dot(r, r) > goal) & (curvature > 0) & (rho > 0)
        if not active.any():
            break
        step = torch.where(active, rho / curvature.clamp_min(1e-300), 0.0)
        step = per_item(step.to(b.dtype), b)
        z = z + step * p
        r = r - step * q
        y = precondition(r)
        following = dot(r, y)
        ratio = torch.where(active, following / rho.clamp_min(1e-300), 0.0)
        p = y + per_item(ratio.to(b.dtype), b) * p
        rho = torch.where(active, following, rho)
    return z


class Correlated:
    """The covariance S F^T L F S of sources, F the cosine transform over channels and sides.

    Args:
        mixing: The mixing of the sources.
        std: The diagonal of S, (batch, sources, channels, *size).
        frequencies: The diagonal of L, (sources, channels, *size), with a mean of one.
    """

    def __init__(self, mixing: MatrixMixing, std: Tensor, frequencies: Tensor) -> None:
        self.mixing, self.std, self.frequencies = mixing, std, frequencies.to(std)
        self._axes = std.ndim - 2

    def apply(self, x: Tensor) -> Tensor:
        """The covariance times x, (batch, sources, channels, *size)."""
        inside = self.frequencies * dct(self.std * x, self._axes)
        return self.std * idct(inside, self._axes)

    def correlate(self, white: Tensor) -> Tensor:
        """Noise with this covariance from white noise, (batch, sources, channels, *size)."""
        return self.std * idct(self.frequencies.sqrt() * white, self._axes)

    def posterior_mean(self, x: Tensor, m: Tensor) -> Tensor:
        """The mean, shaped as x, of the Gaussian with mean x given the observation m.

        By conjugate gradients, preconditioned by the mixing's matrix at each frequency for values
        of equal variance; the remaining residual is distributed as for independent values.
        """
        mixing, variance = self.mixing, self.std.square()
        tau = mixing.noise

        def gram(z: Tensor) -> Tensor:
            return mixing(self.apply(mixing.adjoint(z))) + tau**2 * z

        z = conjugate_gradients(
            gram,
            mixing.residual(x, m),
            self._preconditioner(x, variance),
            tolerance=_TOLERANCE,
            max_iterations=_MAX_ITERATIONS,
        )
        moved = x + self.apply(mixing.adjoint(z))
        return moved if tau else mixing.posterior_mean(moved, m, variance)

    def _preconditioner(self, x: Tensor, variance: Tensor) -> Callable[[Tensor], Tensor]:
        """The inverse of a small matrix for every frequency, between divisions by scales."""
        mixing, channels, axes = self.mixing, x.shape[2], x.ndim - 3
        # The matrix that mixes the components of the sources' channels: (observed, k, components).
        columns = mixing.matrix.to(x).unflatten(1, (-1, channels)) @ dct_matrix(channels, x).T
        flat = self.frequencies.flatten(2)
        gram = torch.einsum("okc,kcf,pkc->fop", columns, flat, columns)
        inverse = torch.linalg.pinv(gram, hermitian=True)  # (frequencies, observed, observed)
        plain = mixing.gram_diagonal(x, 1.0)
        scale = (mixing.gram_diagonal(x, variance) / plain).sqrt()  # (batch, observed, *size)

        def precondition(r: Tensor) -> Tensor:
            inside = dct(r / scale, axes).flatten(2)
            inside = torch.einsum("fop,bpf->bof", inverse, inside)
            return idct(inside.view(r.shape), axes) / scale

        return precondition


def truncated_mean(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """E[z | lower <= z <= upper], elementwise, for z of N(mean, std^2); bounds may be infinite."""
    a, b, flip = _standardized(mean, std, lower, upper)
    mass = _cdf(b) - _cdf(a)
    t = (_density(a) - _density(b)) / mass.clamp_min(1e-300)
    t = torch.where(mass < 1e-290, b, t)  # so far out that only the nearest bound has mass
    t = torch.where(b - a < _NARROW, (a + b) / 2, t)
    return _restored(t, a, b, flip, mean, std, lower, upper)


def truncated_variance(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Var[z | lower <= z <= upper] / std^2, from 0 (z is known) to 1 (no information)."""
    a, b, _ = _standardized(mean, std, lower, upper)
    density_a, density_b = _density(a), _density(b)
    mass = (_cdf(b) - _cdf(a)).clamp_min(1e-300)
    shift = (density_a - density_b) / mass
    at_a = torch.where(a.isinf(), 0.0, a * density_a)
    at_b = torch.where(b.isinf(), 0.0, b * density_b)
    variance = 1 + (at_a - at_b) / mass - shift.square()
    known = (mass < 1e-290) | (b - a < _NARROW)
    return torch.where(known, 0.0, variance).clamp(0, 1).to(mean.dtype)


def truncated_sample(
    mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor, normal: Tensor
) -> Tensor:
    """Draws of N(mean, std^2) given lower <= z <= upper, from standard normal noise.

    The quantile of the noise is kept: without bounds, this is mean + std * normal.
    """
    a, b, flip = _standardized(mean, std, lower, upper)
    quantile = _cdf(torch.where(flip, -normal, normal).double())
    below, above = _cdf(a), _cdf(b)
    t = ndtri(below + quantile * (above - below)).clamp(-_FAR, _FAR)
    t = torch.where(above <= 1e-290, b, t)
    return _restored(t, a, b, flip, mean, std, lower, upper)


def _standardized(
    mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds in standard deviations, mirrored where they are above the mean.

    The lower tail of a Gaussian has full relative precision, the upper one has not.
    """
    center, scale = mean.double(), std.double()
    a, b = (lower.double() - center) / scale, (upper.double() - center) / scale
    flip = torch.where(b.isinf(), ~a.isinf(), ~a.isinf() & (a + b > 0))
    return torch.where(flip, -b, a), torch.where(flip, -a, b), flip


def _restored(
    t: Tensor,
    a: Tensor,
    b: Tensor,
    flip: Tensor,
    mean: Tensor,
    std: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> Tensor:
    """The inverse of `_standardized` for values t, clamped to the bounds."""
    t = torch.maximum(torch.minimum(t, b), a)
    z = mean.double() + std.double() * torch.where(flip, -t, t)
    return torch.where(lower == upper, lower, z.to(mean.dtype))


def _density(t: Tensor) -> Tensor:
    return (-t.square() / 2).exp() / math.sqrt(2 * math.pi)


def _cdf(t: Tensor) -> Tensor:
    """The distribution function of a standard Gaussian, with full precision where it is small."""
    return torch.erfc(-t / math.sqrt(2)) / 2
