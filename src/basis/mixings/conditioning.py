"""Conditional Gaussians: correlated and truncated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.special import ndtri

from basis.mixings.mixing import conjugate_gradients
from basis.tensors import dct, dct_matrix, idct

if TYPE_CHECKING:
    from basis.mixings.matrix import MatrixMixing


_ENOUGH = 1e-5  # relative residual to stop at, so small that no item shows where it stopped
_MOST = 8  # iterations, which leave a hundredth at most to the closed form for independent values


class Correlated:
    """The covariance S F^T L F S of sources, F the cosine transform over channels and sides.

    Args:
        mixing: What shows the sources.
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
        """White noise, (batch, sources, channels, *size), with this covariance."""
        return self.std * idct(self.frequencies.sqrt() * white, self._axes)

    def posterior_mean(self, x: Tensor, m: Tensor) -> Tensor:
        """The mean of the Gaussian about x given the observation m; shaped as x.

        By conjugate gradients, preconditioned by the matrix that each frequency is mixed by where
        all values are as sure as each other; what these leave is put where values are unsure.
        """
        mixing, variance = self.mixing, self.std.square()
        tau = mixing.noise

        def gram(z: Tensor) -> Tensor:
            return mixing(self.apply(mixing.adjoint(z))) + tau**2 * z

        solved = conjugate_gradients(
            gram,
            mixing.residual(x, m),
            self._preconditioner(x, variance),
            tolerance=_ENOUGH,
            most=_MOST,
        )
        moved = x + self.apply(mixing.adjoint(solved))
        return moved if tau else mixing.posterior_mean(moved, m, variance)

    def _preconditioner(self, x: Tensor, variance: Tensor) -> Preconditioner:
        mixing, channels = self.mixing, x.shape[2]
        # How each component of a source's channels shows: (observed, sources, components).
        columns = mixing.matrix.to(x).unflatten(1, (-1, channels)) @ dct_matrix(channels, x).T
        flat = self.frequencies.flatten(2)
        each = torch.einsum("okc,kcf,pkc->fop", columns, flat, columns)
        plain = mixing.gram_diagonal(x, 1.0)
        scale = (mixing.gram_diagonal(x, variance) / plain).sqrt()
        return Preconditioner(torch.linalg.pinv(each, hermitian=True), scale)


class Preconditioner:
    """The inverse of a small matrix for every frequency, between divisions by scales.

    Args:
        inverse: (frequencies, observed channels, observed channels).
        scale: (batch, observed channels, *size).
    """

    def __init__(self, inverse: Tensor, scale: Tensor) -> None:
        self.inverse, self.scale = inverse, scale

    def __call__(self, r: Tensor) -> Tensor:
        axes = r.ndim - 2
        inside = dct(r / self.scale, axes).flatten(2)
        inside = torch.einsum("fop,bpf->bof", self.inverse, inside)
        return idct(inside.view(r.shape), axes) / self.scale


_NARROW = 1e-3  # intervals below so many standard deviations are points
_FAR = 38.0  # standard deviations beyond which double precision knows no tail


def truncated_mean(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """E[z | lower <= z <= upper] for z of N(mean, std^2), each for itself.

    Bounds may be infinite.
    """
    a, b, flip = _left(mean, std, lower, upper)
    below, above = _density(a), _density(b)
    mass = _share(b) - _share(a)
    t = (below - above) / mass.clamp_min(1e-300)
    t = torch.where(mass < 1e-290, b, t)  # so far out that the nearest bound is all there is
    t = torch.where(b - a < _NARROW, (a + b) / 2, t)
    return _back(t, a, b, flip, mean, std, lower, upper)


def truncated_variance(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Var[z | lower <= z <= upper] / std^2, from 0 (z is known) to 1 (the bounds tell nothing)."""
    a, b, _ = _left(mean, std, lower, upper)
    below, above = _density(a), _density(b)
    mass = (_share(b) - _share(a)).clamp_min(1e-300)
    shift = (below - above) / mass
    at_a = torch.where(a.isinf(), 0.0, a * below)
    at_b = torch.where(b.isinf(), 0.0, b * above)
    variance = 1 + (at_a - at_b) / mass - shift.square()
    sure = (mass < 1e-290) | (b - a < _NARROW)
    return torch.where(sure, 0.0, variance).clamp(0, 1).to(mean.dtype)


def truncated_sample(
    mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor, normal: Tensor
) -> Tensor:
    """Draws of N(mean, std^2) given lower <= z <= upper, from standard normal ones.

    The share of draws below a value is kept: without bounds, mean + std * normal.
    """
    a, b, flip = _left(mean, std, lower, upper)
    part = _share(torch.where(flip, -normal, normal).double())
    below, above = _share(a), _share(b)
    t = ndtri(below + part * (above - below)).clamp(-_FAR, _FAR)
    t = torch.where(above <= 1e-290, b, t)
    return _back(t, a, b, flip, mean, std, lower, upper)


def _left(mean: Tensor, std: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds in standard deviations, mirrored where they are above the mean.

    The lower tail of a Gaussian is known to all its digits, the upper one as 1 - something small.
    """
    centre, scale = mean.double(), std.double()
    a, b = (lower.double() - centre) / scale, (upper.double() - centre) / scale
    flip = torch.where(b.isinf(), ~a.isinf(), ~a.isinf() & (a + b > 0))
    return torch.where(flip, -b, a), torch.where(flip, -a, b), flip


def _back(
    t: Tensor,
    a: Tensor,
    b: Tensor,
    flip: Tensor,
    mean: Tensor,
    std: Tensor,
    lower: Tensor,
    upper: Tensor,
) -> Tensor:
    t = torch.maximum(torch.minimum(t, b), a)
    z = mean.double() + std.double() * torch.where(flip, -t, t)
    return torch.where(lower == upper, lower, z.to(mean.dtype))


def _density(t: Tensor) -> Tensor:
    return (-t.square() / 2).exp() / math.sqrt(2 * math.pi)


def _share(t: Tensor) -> Tensor:
    """The share of a standard Gaussian below t, to all digits where it is small."""
    return torch.erfc(-t / math.sqrt(2)) / 2
