"""Images larger than a prior was trained on, seen through overlapping tiles."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.priors._prior import Prior, as_sigmas


class Tiled(Prior):
    """A prior of larger images: every step denoises overlapping tiles and blends the answers.

    The blend is done at every noise level and not once at the end, so that neighbouring tiles agree with each other as they
    come out of the noise (Bar-Tal et al. 2023, arXiv:2302.08113), and no seam is left. A tile counts as much as it is near to its
    own middle.

    Args:
        prior: The prior of a tile.
        height, width: Sides of the images, not below those of a tile.
        overlap: Pixels that neighbouring tiles share at least; half a tile by default.
    """

    def __init__(self, prior: Prior, height: int, width: int, overlap: int | None = None) -> None:
        channels, tile_height, tile_width = prior.shape
        height, width = int(height), int(width)
        if height < tile_height or width < tile_width:
            raise BasisError(
                f"an image of {height}x{width} is smaller than what prior {prior.name!r} was trained on, "
                f"{tile_height}x{tile_width}"
            )
        shared = min(tile_height, tile_width) // 2 if overlap is None else overlap
        if not 0 <= shared < min(tile_height, tile_width):
            raise BasisError(f"tiles of {tile_height}x{tile_width} cannot overlap by {overlap}")
        self.prior, self.shape = prior, (channels, height, width)
        self.sigma_min, self.sigma_max = prior.sigma_min, prior.sigma_max
        self.name, self.spread, self.card = prior.name, prior.spread, prior.card
        self.corners = [
            (top, left)
            for top in starts(height, tile_height, shared)
            for left in starts(width, tile_width, shared)
        ]
        self.cost = prior.cost * len(self.corners)
        weight = tent(tile_height)[:, None] * tent(tile_width)
        total = torch.zeros(height, width, dtype=weight.dtype)
        for top, left in self.corners:
            total[top : top + tile_height, left : left + tile_width] += weight
        self._weights = [
            weight / total[top : top + tile_height, left : left + tile_width]
            for top, left in self.corners
        ]

    def to(self, device: torch.device | str | None = None, dtype: Any = None) -> Tiled:
        self.prior.to(device, dtype)
        return self

    @property
    def device(self) -> torch.device | None:
        return self.prior.device

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._blend([self.prior.denoise(*self._cut(x, sigma))], x)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        mean, variance = self._blend(list(self.prior.moments(*self._cut(x, sigma))), x)
        return mean, variance

    def describe(self) -> dict[str, Any]:
        return self.prior.describe() | {"shape": list(self.shape), "tiles": len(self.corners)}

    def _cut(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """All tiles of all images, (tiles * batch, ...), and their noise levels."""
        _, height, width = self.prior.shape
        tiles = [x[..., top : top + height, left : left + width] for top, left in self.corners]
        return torch.cat(tiles), as_sigmas(sigma, x).repeat(len(tiles))

    def _blend(self, answers: list[Tensor], x: Tensor) -> list[Tensor]:
        _, height, width = self.prior.shape
        blended = []
        for answer in answers:
            out = torch.zeros_like(x)
            tiles = answer.unflatten(0, (len(self.corners), -1))
            for (top, left), weight, tile in zip(self.corners, self._weights, tiles, strict=True):
                out[..., top : top + height, left : left + width] += weight.to(x) * tile
            blended.append(out)
        return blended


def starts(side: int, tile: int, shared: int) -> list[int]:
    """Where tiles begin so that they cover a side, evenly, sharing at least so many pixels."""
    count = 1 + math.ceil((side - tile) / (tile - shared))
    return [round(i * (side - tile) / max(1, count - 1)) for i in range(count)]


def tent(tile: int) -> Tensor:
    """Weights that fall from the middle of a tile to its edge, and stay above zero."""
    at = torch.arange(tile, dtype=torch.float64) + 0.5
    return torch.minimum(at, tile - at) / (tile / 2)
