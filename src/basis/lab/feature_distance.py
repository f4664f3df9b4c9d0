"""Distances of sets of images by the features of a network; all use of `basis.lab`.

Features are computed and kept a piece at a time: a report that was stopped goes on with the next
piece, and however many images there are, the features of one piece are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis.lab.context import Context
from basis.lab.features import (
    Gaussian,
    RunningGaussian,
    RunningScore,
    frechet_distance,
    kernel_distance,
)
from basis.lab.fingerprint import fingerprint
from basis.lab.result_cache import CachedResult
from basis.signals.datasets import load_images

NETWORK = "efficientnet-lite0"
"""What sets of photos are compared by: unlike Inception's weights, a package registry has it."""

ROOMS = ("perception",)

_PIECE = 500
"""Images whose features are computed and kept together."""
_REFERENCE = 10_000
"""Photos of the test set that the full version compares with: all of CIFAR-10's."""
_BLOCKS = 8
"""Blocks of the kernel distance at least, so that its error can be told."""


@dataclass(frozen=True)
class Distances:
    """How far a set of images is from the test photos.

    Attributes:
        frechet: Fréchet's distance.
        kernel, kernel_error: The kernel distance, which is unbiased, and its standard error.
        score, deviation: The class score, and its standard deviation over splits.
    """

    frechet: float
    kernel: float
    kernel_error: float
    score: float
    deviation: float

    def kernel_cell(self) -> str:
        """The kernel distance in thousandths, as a table shows it."""
        error = "" if math.isnan(self.kernel_error) else f" ± {1000 * self.kernel_error:.1f}"
        return f"{1000 * self.kernel:.1f}{error}"

    def score_cell(self) -> str:
        """The class score, as a table shows it."""
        return f"{self.score:.2f} ± {self.deviation:.2f}"


class _Features:
    """The features of a set of images, piece by piece, from the cache where they are in it.

    Args:
        ctx: The cache.
        network: What features are taken from.
        images: (n, k, channels, height, width), n rows of k images, floats in [0, 1] or uint8.
        label: What a progress bar says.
        shuffled: Whether rows come in a random order, which is always the same.
    """

    def __init__(
        self, ctx: Context, network: Any, images: Tensor, label: str, shuffled: bool = False
    ) -> None:
        self.ctx, self.network, self.images, self.label = ctx, network, images, label
        rows, k = images.shape[:2]
        # Images of one row are not independent: they are put far apart, into different blocks.
        away = torch.arange(k) * max(1, rows // k)
        self.rows = ((torch.arange(rows)[:, None] + away) % rows).flatten()
        if shuffled:
            self.rows = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[self.rows]
        self.columns = torch.arange(k).repeat(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self) -> Iterator[Tensor]:
        """The images, (at most a piece's, channels, height, width)."""
        for rows, columns in zip(self.rows.split(_PIECE), self.columns.split(_PIECE), strict=True):
            yield self.images[rows, columns]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features (m, d) and class probabilities (m, classes) of every piece."""
        done = 0
        for piece in self.pieces():

            def compute(piece: Tensor = piece, done: int = done) -> CachedResult:
                self.ctx.on_progress(f"{NETWORK}: features of {self.label}", done / len(self))
                found = self.network.extract(piece)
                tensors = {"features": found.features, "probabilities": found.probabilities.half()}
                return CachedResult(tensors)

            key = {"network": self.ctx.object_key(self.network), "images": piece}
            tensors = self.ctx.cached("features", key, compute, ROOMS).tensors
            yield tensors["features"], tensors["probabilities"]
            done += len(piece)

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Features in blocks of one size, (size, d); the rest is left out."""
        held: Tensor | None = None
        for found, _ in self:
            held = found if held is None else torch.cat([held, found])
            while len(held) >= size:
                yield held[:size]
                held = held[size:]


def features(network: Any, images: Tensor) -> Tensor:
    """The features of images under a network, (n, features)."""
    return network.extract(images).features


def distances(ctx: Context, title: str, sources: Tensor, data: str) -> Distances | None:
    """How far images are from the test photos of a set; None where the network is not installed.

    Args:
        ctx: The network and the cache.
        title: What a progress bar says.
        sources: (count, k, channels, height, width), in [0, 1].
        data: The set.
    """
    network = ctx.feature_network(NETWORK)
    if network is None:
        return None
    photos = load_images(data, "test", root=ctx.root).images[: ctx.count(_REFERENCE, least=64)]
    # Coloured photos are those of the test set in its order, and would meet themselves in a block.
    known = _Features(ctx, network, photos[:, None], data, shuffled=True)
    given = _Features(ctx, network, sources, title)

    def compute() -> CachedResult:
        gaussian, score = RunningGaussian(), RunningScore(len(given), min(10, len(given)))
        for found, probabilities in given:
            gaussian.add(found)
            score.add(probabilities)
        size = max(2, min(_PIECE, len(given) // _BLOCKS))
        blocks = len(given) // size
        kernel = kernel_distance(given.blocks(size), known.blocks(len(known) // blocks))
        classes = score.score()
        values = {
            "frechet": frechet_distance(gaussian.gaussian(), _gaussian(known, photos)),
            "kernel": kernel.distance,
            "kernel_error": kernel.error,
            "score": classes.mean,
            "deviation": classes.deviation,
        }
        return CachedResult(values=values)

    key = {
        "network": ctx.object_key(network),
        "images": [fingerprint(piece) for piece in given.pieces()],
        "reference": photos,
    }
    return Distances(**ctx.cached("distance", key, compute, ROOMS).values)


def _gaussian(known: _Features, photos: Tensor) -> Gaussian:
    """The Gaussian of the features of the test photos, kept as well."""

    def compute() -> CachedResult:
        running = RunningGaussian()
        for found, _ in known:
            running.add(found)
        fitted = running.gaussian()
        return CachedResult({"mean": fitted.mean, "covariance": fitted.covariance})

    key = {"network": known.ctx.object_key(known.network), "images": photos}
    tensors = known.ctx.cached("reference", key, compute, ROOMS).tensors
    return Gaussian(tensors["mean"], tensors["covariance"], len(photos))
