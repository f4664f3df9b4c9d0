"""Gaussian values that are known to lie in an interval: their means, and draws of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.special import ndtri

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


def truncated_draw(
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
