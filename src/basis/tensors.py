"""Shapes of batches and cosine transforms."""

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
    """sigma as one number per item of x, (batch,), in x's precision and place."""
    s = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return s.expand(x.shape[0]) if s.ndim == 0 else s


def per_item(value: Tensor | float, x: Tensor) -> Tensor:
    """A number, or one number per item, shaped to broadcast over x: (batch, 1, ..., 1).

    Args:
        value: A number or (batch,).
        x: (batch, ...), of any rank; the answer has its precision and place.
    """
    return as_sigmas(value, x).reshape(-1, *[1] * (x.ndim - 1))


@lru_cache(maxsize=64)
def _rows(length: int) -> Tensor:
    """The transform of one axis as a matrix, (frequencies, places), in double precision."""
    frequency = torch.arange(length, dtype=torch.float64)[:, None]
    place = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi * frequency * place / length) * math.sqrt(2 / length)
    rows[0] /= math.sqrt(2)
    return rows


def dct_matrix(length: int, like: Tensor) -> Tensor:
    """The orthonormal cosine transform (DCT-II) of one axis, (length, length), like a tensor."""
    return _rows(length).to(like)


def dct(x: Tensor, axes: int) -> Tensor:
    """x by frequency along its last axes; `idct` undoes it and is its transpose."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, dct_matrix(x.shape[axis], x), axis)
    return x


def idct(x: Tensor, axes: int) -> Tensor:
    """The signal of which x holds the frequencies along its last axes."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, dct_matrix(x.shape[axis], x).T, axis)
    return x


def _along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The matrix times x along one axis, counted from the last, -1."""
    if axis == -1:
        return x @ matrix.T
    if axis == -2:
        return matrix @ x
    flat = matrix @ x.flatten(axis + 1)
    return flat.view(x.shape)


def cosine_frequencies(size: tuple[int, ...]) -> Tensor:
    """The frequency of every cosine over sides of this size, in cycles per place, shaped alike.

    What is constant along all sides stands for everything slower than the slowest cosine, and gets
    half of its frequency.
    """
    squares = torch.zeros(size, dtype=torch.float64)
    for axis, length in enumerate(size):
        along = torch.arange(length, dtype=torch.float64) / (2 * length)
        squares = squares + along.square().reshape(-1, *[1] * (len(size) - axis - 1))
    slowest = 1 / (4 * max(size, default=1))
    return squares.sqrt().clamp_min(slowest)
