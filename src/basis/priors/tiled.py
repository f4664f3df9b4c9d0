"""Signals larger than a prior was trained on, in overlapping tiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.priors.prior import Derived, Prior
from basis.tensors import as_sigmas


class Tiled(Derived):
    """A prior of larger signals: every step denoises overlapping tiles and blends them.

    Tiles are blended at every noise level and not once at the end, so that neighboring tiles agree
    with each other and no seam is left (Bar-Tal et al. 2023, arXiv:2302.08113). A tile has the
    largest weight in its middle.

    Args:
        prior: The prior of a tile, (channels, *tile).
        size: Sides of the signals, not below those of a tile: height and width of pictures, the
            length of a recording.
        overlap: The least overlap of neighboring tiles along every side; half of the shortest side
            of a tile by default.
    """

    def __init__(self, prior: Prior, *size: int, overlap: int | None = None) -> None:
        channels, *tile = prior.shape
        sides = [int(side) for side in size]
        if len(sides) != len(tile):
            raise BasisError(
                f"signals of prior {prior.name!r} have {len(tile)} sides, not {len(sides)}"
            )
        if any(side < own for side, own in zip(sides, tile, strict=True)):
            raise BasisError(
                f"a signal of {_by(sides)} is smaller than those of prior {prior.name!r}, "
                f"{_by(tile)}"
            )
        shared = min(tile) // 2 if overlap is None else overlap
        if not 0 <= shared < min(tile):
            raise BasisError(f"tiles of {_by(tile)} cannot overlap by {overlap}")
        super().__init__(prior, (channels, *sides))
        along = [starts(side, own, shared) for side, own in zip(sides, tile, strict=True)]
        self.corners = list(itertools.product(*along))
        self.evaluations = prior.evaluations * len(self.corners)
        weight = torch.ones(())
        for own in tile:
            weight = weight[..., None] * tent(own)
        total = torch.zeros(sides, dtype=weight.dtype)
        for place in self._places():
            total[place] += weight
        self._weights = [weight / total[place] for place in self._places()]

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._blend([self.prior.denoise(*self._cut(x, sigma))], x)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        mean, variance = self._blend(list(self.prior.moments(*self._cut(x, sigma))), x)
        return mean, variance

    def describe(self) -> dict[str, Any]:
        return self.prior.describe() | {"shape": list(self.shape), "tiles": len(self.corners)}

    def _places(self) -> list[tuple[Any, ...]]:
        """The slices of each tile along the sides of a signal."""
        tile = self.prior.shape[1:]
        return [
            tuple(slice(first, first + own) for first, own in zip(corner, tile, strict=True))
            for corner in self.corners
        ]

    def _cut(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """All tiles of all signals, (tiles * batch, ...), and their noise levels."""
        tiles = [x[(Ellipsis, *place)] for place in self._places()]
        return torch.cat(tiles), as_sigmas(sigma, x).repeat(len(tiles))

    def _blend(self, answers: list[Tensor], x: Tensor) -> list[Tensor]:
        blended = []
        for answer in answers:
            out = torch.zeros_like(x)
            tiles = answer.unflatten(0, (len(self.corners), -1))
            for place, weight, tile in zip(self._places(), self._weights, tiles, strict=True):
                out[(Ellipsis, *place)] += weight.to(x) * tile
            blended.append(out)
        return blended


def large_enough(priors: Sequence[Prior], size: tuple[int, ...]) -> list[Prior]:
    """The priors for signals of this size, in tiles if it is larger than theirs.

    Shapes:
        size: The sides of the signals, without channels.
    """
    tiles = [p.shape[1:] for p in priors]
    if any(len(size) != len(tile) or size == tile for tile in tiles) or any(
        side < own for tile in tiles for side, own in zip(size, tile, strict=True)
    ):
        return list(priors)  # unchanged; too small signals are refused later
    return [Tiled(p, *size) for p in priors]


def starts(side: int, tile: int, shared: int) -> list[int]:
    """The starts of tiles that cover a side evenly and overlap by at least `shared`."""
    count = 1 + math.ceil((side - tile) / (tile - shared))
    return [round(i * (side - tile) / max(1, count - 1)) for i in range(count)]


def tent(tile: int) -> Tensor:
    """Weights that fall from the middle of a tile to its edge and stay above zero."""
    at = torch.arange(tile, dtype=torch.float64) + 0.5
    return torch.minimum(at, tile - at) / (tile / 2)


def _by(sides: list[int]) -> str:
    return "x".join(map(str, sides))
