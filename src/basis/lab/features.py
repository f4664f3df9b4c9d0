"""Distances between sets of images by the features of a network."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.progress import with_bar


@dataclass(frozen=True)
class Features:
    """Features (n, d) and class probabilities (n, classes) of images."""

    features: Tensor
    probabilities: Tensor


class FeatureExtractor:
    """A network whose features and class probabilities compare sets of images.

    Args:
        name: Names its distances.
        module: Images in [0, 1], (batch, channels, height, width), to features and class logits.
        channels: Channels of its images. Grey images are repeated for a network of color images.
        batch: Images at once.
        side: Side of its images; None for any size.
    """

    def __init__(
        self, name: str, module: nn.Module, channels: int, batch: int = 64, side: int | None = None
    ) -> None:
        self.name, self.channels, self.batch, self.side = name, channels, batch, side
        self.module = module.eval().requires_grad_(False)

    @property
    def distance_name(self) -> str:
        """The name of the Fréchet distance: only that of Inception is called FID."""
        return "FID" if self.name == "inception" else f"Fréchet distance ({self.name})"

    @property
    def score_name(self) -> str:
        """The name of the score: only that of Inception is called Inception Score."""
        return "Inception Score" if self.name == "inception" else f"class score ({self.name})"

    @torch.inference_mode()
    def extract(self, images: Tensor) -> Features:
        """Features and class probabilities of images, (n, channels, height, width), uint8 or float
        in [0, 1]."""
        features, probabilities = [], []
        for x in images.split(self.batch):
            x = x.float().div(255) if x.dtype == torch.uint8 else x.float().clamp(0, 1)
            f, logits = self.module(self._checked(x))
            features.append(f)
            probabilities.append(logits.softmax(dim=1))
        return Features(torch.cat(features), torch.cat(probabilities))

    def _checked(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise BasisError(
                f"{self.name} needs images (n, channels, height, width), not {tuple(x.shape)}"
            )
        if x.shape[1] not in (1, self.channels):
            raise BasisError(
                f"{self.name} needs images of {self.channels} channel(s), not {x.shape[1]}; "
                "networks of color images are efficientnet-lite0 and inception (--network)"
            )
        if self.side is not None and tuple(x.shape[2:]) != (self.side, self.side):
            raise BasisError(
                f"{self.name} needs images of {self.side}x{self.side} pixels, not "
                f"{x.shape[3]}x{x.shape[2]}; --size {self.side} crops and resizes them"
            )
        return x.expand(-1, self.channels, -1, -1)


@dataclass(frozen=True)
class Gaussian:
    """Mean (d,) and covariance (d, d) of features, in float64."""

    mean: Tensor
    covariance: Tensor


def gaussian_of(features: Tensor) -> Gaussian:
    """The Gaussian fitted to features, (n, d); n of at least 2."""
    if features.ndim != 2 or len(features) < 2:
        raise BasisError(
            f"features must be (n, d) with n of at least 2, not {tuple(features.shape)}"
        )
    f = features.double()
    return Gaussian(f.mean(dim=0), f.T.cov())


def frechet_distance(a: Gaussian, b: Gaussian) -> float:
    """|mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2)).

    The trace of the root is the sum of the roots of the eigenvalues of A B, which are those of the
    symmetric A^(1/2) B A^(1/2): this is stable for covariances of low rank.
    """
    try:
        values, vectors = torch.linalg.eigh(a.covariance)
        root = vectors * values.clamp_min(0).sqrt() @ vectors.T
        crossed = torch.linalg.eigvalsh(root @ b.covariance @ root).clamp_min(0).sqrt().sum()
    except RuntimeError as error:  # torch.linalg.LinAlgError is a subclass and not exported
        raise BasisError(
            "the features are not finite or differ too much in scale for a distance; check the "
            "weights of the network"
        ) from error
    trace = a.covariance.trace() + b.covariance.trace() - 2 * crossed
    return max(0.0, ((a.mean - b.mean).square().sum() + trace).item())


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation over splits."""

    mean: float
    std: float


def inception_score(probabilities: Tensor, splits: int = 10) -> Score:
    """exp of the mean divergence of each image's class probabilities from their mean.

    Args:
        probabilities: (n, classes).
        splits: Parts of the set; the score is the mean over them.
    """
    if not 1 <= splits <= len(probabilities):
        raise BasisError(
            f"splits must be from 1 to the number of images ({len(probabilities)}), not {splits}"
        )
    scores = []
    for p in probabilities.double().clamp_min(1e-16).tensor_split(splits):
        marginal = p.mean(dim=0, keepdim=True)
        scores.append((p * (p.log() - marginal.log())).sum(dim=1).mean().exp())
    values = torch.stack(scores)
    return Score(values.mean().item(), values.std().item() if splits > 1 else math.nan)


@dataclass(frozen=True)
class KernelDistance:
    """Squared maximum mean discrepancy, its standard error over blocks, and their number."""

    distance: float
    error: float
    blocks: int


def kernel_distance(a: Iterable[Tensor], b: Iterable[Tensor]) -> KernelDistance:
    """The kernel distance of two sets of features, which is unbiased.

    Args:
        a, b: Blocks of features, (n, d) with n of at least 2. Images must be in random order.
            Blocks of one set without a counterpart in the other are ignored.
    """
    found = torch.tensor([_block_distance(x, y) for x, y in zip(a, b, strict=False)])
    if not len(found):
        raise BasisError("a kernel distance needs at least one block of features of each set")
    error = found.std().item() / math.sqrt(len(found)) if len(found) > 1 else math.nan
    return KernelDistance(found.mean().item(), error, len(found))


def _block_distance(x: Tensor, y: Tensor) -> float:
    if min(len(x), len(y)) < 2 or x.shape[1] != y.shape[1]:
        raise BasisError(
            f"blocks of features of shapes {tuple(x.shape)} and {tuple(y.shape)} cannot be compared"
        )
    x, y = x.double(), y.double()

    def kernel(u: Tensor, v: Tensor) -> Tensor:
        return (u @ v.T / u.shape[1] + 1).pow(3)

    def within(u: Tensor) -> Tensor:
        k = kernel(u, u)
        return (k.sum() - k.trace()) / (len(u) * (len(u) - 1))

    return (within(x) + within(y) - 2 * kernel(x, y).mean()).item()


def read_features(extractor: FeatureExtractor, images: Any, count: int | None = None) -> Features:
    """The features of a set of images that may be on disk; only the features are kept in memory.

    Args:
        extractor: The network.
        images: (n, channels, height, width), uint8 or floats in [0, 1]; a tensor, or an array such
            as a memory map. With further axes before the last three, each entry is an image.
        count: At most this many of them; at least 2.
    """
    per_row = math.prod(images.shape[1:-3])
    total = len(images) * per_row if count is None else min(count, len(images) * per_row)
    if total < 2:
        raise BasisError("a distance needs at least 2 images in each set")
    rows = max(1, extractor.batch // per_row)
    parts = []
    for first in with_bar(range(0, -(-total // per_row), rows), "features"):
        part = images[first : first + rows]
        part = part if isinstance(part, Tensor) else torch.as_tensor(np.array(part))
        parts.append(extractor.extract(part.reshape(-1, *images.shape[-3:])))
    return Features(
        torch.cat([part.features for part in parts])[:total],
        torch.cat([part.probabilities for part in parts])[:total],
    )


@dataclass(frozen=True)
class Comparison:
    """How a set of images compares with another by the features of `network`.

    Attributes:
        distance: Fréchet distance of the features.
        kernel: Kernel distance of the features.
        score: exp of the mean divergence of class probabilities, over splits.
        count, reference: Images in each set.
    """

    network: str
    distance: float
    kernel: KernelDistance
    score: Score
    count: int
    reference: int


def compare(
    extractor: FeatureExtractor,
    images: Any,
    reference: Any,
    *,
    count: int | None = None,
    splits: int = 10,
    block: int = 500,
    seed: int = 0,
) -> Comparison:
    """Distances of images from a reference set, and the images' score.

    Args:
        extractor: The network.
        images, reference: Sets of images, as for `read_features`.
        count: At most this many images of each set.
        splits: Parts that the score is averaged over; at most n.
        block: Images in a block of the kernel distance.
        seed: Of the order in which images form blocks.
    """
    sets = [read_features(extractor, x, count) for x in (images, reference)]
    sizes = [len(found.features) for found in sets]
    size = min(block, *sizes)

    def blocks(found: Features) -> Iterable[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(found.features), generator=generator)
        return found.features[order[: len(order) // size * size]].split(size)

    return Comparison(
        extractor.name,
        frechet_distance(*(gaussian_of(found.features) for found in sets)),
        kernel_distance(*map(blocks, sets)),
        inception_score(sets[0].probabilities, min(splits, sizes[0])),
        *sizes,
    )
