"""Bounds, one number per item of a batch, and cosine transforms."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

Bound = Tensor | float | None


def clamp(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """x, of any shape, between bounds that are numbers, tensors that broadcast to it, or None."""
    if low is None and high is None:
        return x
    return x.clamp(low, high)  # type: ignore[arg-type]


def as_sigmas(sigma: Tensor | float, x: Tensor) -> Tensor:
    """sigma as one number per item of x, (batch,), with the dtype and device of x."""
    s = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return s.expand(x.shape[0]) if s.ndim == 0 else s


def per_item(value: Tensor | float, x: Tensor) -> Tensor:
    """A number, or one number per item, shaped to broadcast over x: (batch, 1, ..., 1).

    Args:
        value: A number or (batch,).
        x: (batch, ...), of any rank; the result has its dtype and device.
    """
    return as_sigmas(value, x).reshape(-1, *[1] * (x.ndim - 1))


@lru_cache(maxsize=64)
def _rows(length: int) -> Tensor:
    """The transform of one axis as a matrix, (frequencies, positions), in double precision."""
    frequency = torch.arange(length, dtype=torch.float64)[:, None]
    position = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi * frequency * position / length) * math.sqrt(2 / length)
    rows[0] /= math.sqrt(2)
    return rows


def dct_matrix(length: int, like: Tensor) -> Tensor:
    """The matrix of the orthonormal DCT-II, (length, length), with dtype and device of `like`."""
    return _rows(length).to(like)


def dct(x: Tensor, axes: int) -> Tensor:
    """The orthonormal cosine transform of x over its last axes."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, dct_matrix(x.shape[axis], x), axis)
    return x


def idct(x: Tensor, axes: int) -> Tensor:
    """The inverse (and transpose) of `dct`."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, dct_matrix(x.shape[axis], x).T, axis)
    return x


def _along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The matrix times x along a negative axis."""
    if axis == -1:
        return x @ matrix.T
    if axis == -2:
        return matrix @ x
    flat = matrix @ x.flatten(axis + 1)
    return flat.view(x.shape)


def cosine_frequencies(size: tuple[int, ...]) -> Tensor:
    """The frequency of every component of `dct` for sides of this size, in cycles per sample.

    The constant component stands for all frequencies below the lowest one and gets half of it.
    """
    squares = torch.zeros(size, dtype=torch.float64)
    for axis, length in enumerate(size):
        along = torch.arange(length, dtype=torch.float64) / (2 * length)
        squares = squares + along.square().reshape(-1, *[1] * (len(size) - axis - 1))
    slowest = 1 / (4 * max(size, default=1))
    return squares.sqrt().clamp_min(slowest)
