"""Distances of tables: computed in pieces, each of which is cached, from the test photos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis.lab.cache import CachedResult
from basis.lab.context import Context
from basis.lab.features import (
    Features,
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


def cached_features(ctx: Context, network: Any, images: Tensor, label: str) -> Features:
    """The features of images, (n, channels, height, width), of which each piece is cached."""
    key = [network.name, ctx.hash_of(network.module)]
    features, probabilities = [], []
    for number, piece in enumerate(images.split(_PIECE)):

        def compute(piece: Tensor = piece, number: int = number) -> CachedResult:
            ctx.on_progress(f"{NETWORK}: features of {label}", number * _PIECE / len(images))
            found = network.extract(piece)
            tensors = {"features": found.features, "probabilities": found.probabilities.half()}
            return CachedResult(tensors)

        tensors = ctx.cached("features", {"network": key, "images": piece}, compute).tensors
        features.append(tensors["features"])
        probabilities.append(tensors["probabilities"])
    return Features(torch.cat(features), torch.cat(probabilities))


def spread_rows(images: Tensor) -> Tensor:
    """(n, k, ...) to (n k, ...), the images of a row far apart, so that they are in different
    blocks: they are not independent."""
    rows, k = images.shape[:2]
    shift = torch.arange(k) * max(1, rows // k)
    index = ((torch.arange(rows)[:, None] + shift) % rows).flatten()
    return images[index, torch.arange(k).repeat(rows)]


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
    photos = photos[torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))]
    known = cached_features(ctx, network, photos, data).features
    found = cached_features(ctx, network, spread_rows(sources), label)
    size = max(2, min(_PIECE, len(found.features) // _BLOCKS))
    blocks = len(found.features) // size
    kernel = kernel_distance(
        found.features[: blocks * size].split(size), known.split(len(known) // blocks)
    )
    score = inception_score(found.probabilities, min(10, len(found.features)))
    frechet = frechet_distance(gaussian_of(found.features), gaussian_of(known))
    return Distances(frechet, kernel.distance, kernel.error, score.mean, score.std)
