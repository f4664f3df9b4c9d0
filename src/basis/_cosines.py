"""Orthonormal cosine transforms: signals by frequency."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["cosines", "from_cosines", "radii", "to_cosines"]


@lru_cache(maxsize=64)
def _rows(length: int) -> Tensor:
    """The transform of one axis as a matrix, (frequencies, places), in double precision."""
    frequency = torch.arange(length, dtype=torch.float64)[:, None]
    place = torch.arange(length, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi * frequency * place / length) * math.sqrt(2 / length)
    rows[0] /= math.sqrt(2)
    return rows


def cosines(length: int, like: Tensor) -> Tensor:
    """The orthonormal cosine transform (DCT-II) of one axis, (length, length), like a tensor."""
    return _rows(length).to(like)


def to_cosines(x: Tensor, axes: int) -> Tensor:
    """x by frequency along its last axes; `from_cosines` undoes it and is its transpose."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, cosines(x.shape[axis], x), axis)
    return x


def from_cosines(x: Tensor, axes: int) -> Tensor:
    """The signal of which x holds the frequencies along its last axes."""
    for axis in range(-axes, 0):
        if x.shape[axis] > 1:
            x = _along(x, cosines(x.shape[axis], x).T, axis)
    return x


def _along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The matrix times x along one axis, counted from the last, -1."""
    if axis == -1:
        return x @ matrix.T
    if axis == -2:
        return matrix @ x
    flat = matrix @ x.flatten(axis + 1)
    return flat.view(x.shape)


def radii(size: tuple[int, ...]) -> Tensor:
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
