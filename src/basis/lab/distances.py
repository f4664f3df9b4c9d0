"""Distances of tables: computed in pieces, each of which is cached, from the test photos."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis.lab.cache import CachedResult, fingerprint
from basis.lab.context import Context
from basis.lab.features import (
    Gaussian,
    frechet_distance,
    gaussian_of,
    inception_score,
    kernel_distance,
)
from basis.signals.datasets import load_images

NETWORK = "efficientnet-lite0"
"""What photos are compared by: its weights are in a package registry, unlike those of Inception."""

_PIECE = 500  # images whose features are cached together
_REFERENCE = 10_000  # test photos that the full version compares with: all of CIFAR-10
_BLOCKS = 8  # of the kernel distance, at least, for its standard error


@dataclass(frozen=True)
class Distances:
    """How far a set of images is from the test photos.

    Attributes:
        frechet: Fréchet distance.
        kernel, kernel_error: Kernel distance, which is unbiased, and its standard error.
        score, std: Class score and its standard deviation over splits.
    """

    frechet: float
    kernel: float
    kernel_error: float
    score: float
    std: float

    def kernel_cell(self) -> str:
        """The kernel distance in thousandths."""
        error = "" if math.isnan(self.kernel_error) else f" ± {1000 * self.kernel_error:.1f}"
        return f"{1000 * self.kernel:.1f}{error}"

    def score_cell(self) -> str:
        """The class score."""
        return f"{self.score:.2f} ± {self.std:.2f}"


class PiecewiseFeatures:
    """The features of a set of images, piece by piece, from the cache where possible.

    Args:
        ctx: The cache.
        network: The feature extractor.
        images: (n, k, channels, height, width), floats in [0, 1] or uint8.
        label: For the progress bar.
        shuffled: Whether rows come in a random order (always the same).
    """

    def __init__(
        self, ctx: Context, network: Any, images: Tensor, label: str, shuffled: bool = False
    ) -> None:
        self.ctx, self.network, self.images, self.label = ctx, network, images, label
        rows, k = images.shape[:2]
        # Images of one row are not independent: they are put into different blocks.
        shift = torch.arange(k) * max(1, rows // k)
        self.rows = ((torch.arange(rows)[:, None] + shift) % rows).flatten()
        if shuffled:
            self.rows = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[self.rows]
        self.columns = torch.arange(k).repeat(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self) -> Iterator[Tensor]:
        """The images, (piece, channels, height, width)."""
        for rows, columns in zip(self.rows.split(_PIECE), self.columns.split(_PIECE), strict=True):
            yield self.images[rows, columns]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features (n, d) and class probabilities (n, classes) of every piece."""
        done = 0
        for piece in self.pieces():

            def compute(piece: Tensor = piece, done: int = done) -> CachedResult:
                self.ctx.on_progress(f"{NETWORK}: features of {self.label}", done / len(self))
                found = self.network.extract(piece)
                tensors = {"features": found.features, "probabilities": found.probabilities.half()}
                return CachedResult(tensors)

            key = {"network": network_key(self.ctx, self.network), "images": piece}
            tensors = self.ctx.cached("features", key, compute).tensors
            yield tensors["features"], tensors["probabilities"]
            done += len(piece)

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Features in blocks, (size, d); the rest is left out."""
        held: Tensor | None = None
        for found, _ in self:
            held = found if held is None else torch.cat([held, found])
            while len(held) >= size:
                yield held[:size]
                held = held[size:]


def network_key(ctx: Context, network: Any) -> Any:
    """What identifies a feature extractor in a key."""
    return [network.name, ctx.hash_of(network.module)]


def distances(ctx: Context, label: str, sources: Tensor, data: str) -> Distances | None:
    """How far images are from the test photos of a set; None if the network is not installed.

    Args:
        ctx: The network and the cache.
        label: For the progress bar.
        sources: (count, k, channels, height, width), in [0, 1].
        data: The set.
    """
    network = ctx.feature_network(NETWORK)
    if network is None:
        return None
    photos = load_images(data, "test", root=ctx.root).images[: ctx.count(_REFERENCE, at_least=64)]
    # Colorized photos are test photos in the order of the set; unshuffled, a photo and its
    # colorization would be in the same block.
    reference = PiecewiseFeatures(ctx, network, photos[:, None], data, shuffled=True)
    given = PiecewiseFeatures(ctx, network, sources, label)

    def gaussian() -> CachedResult:
        fitted = gaussian_of(features for features, _ in reference)
        return CachedResult({"mean": fitted.mean, "covariance": fitted.covariance})

    def compute() -> CachedResult:
        key = {"network": network_key(ctx, network), "images": photos}
        known = ctx.cached("reference", key, gaussian).tensors
        target = Gaussian(known["mean"], known["covariance"], len(photos))
        size = max(2, min(_PIECE, len(given) // _BLOCKS))
        blocks = len(given) // size
        kernel = kernel_distance(given.blocks(size), reference.blocks(len(reference) // blocks))
        score = inception_score((p for _, p in given), min(10, len(given)))
        return CachedResult(
            values={
                "frechet": frechet_distance(gaussian_of(f for f, _ in given), target),
                "kernel": kernel.distance,
                "kernel_error": kernel.error,
                "score": score.mean,
                "std": score.std,
            }
        )

    key = {
        "network": network_key(ctx, network),
        "images": [fingerprint(piece) for piece in given.pieces()],
        "reference": photos,
    }
    return Distances(**ctx.cached("distance", key, compute).values)
