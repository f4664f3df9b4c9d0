"""Distances between sets of images by the features of a network.

Sets may be larger than memory: images are read and their features summed up in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError


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
        channels: Channels of its images. Gray images are repeated for a network of color images.
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
    """Mean (d,) and covariance (d, d) of features, in float64, and the number of images."""

    mean: Tensor
    covariance: Tensor
    count: int


def gaussian_of(pieces: Tensor | Iterable[Tensor]) -> Gaussian:
    """The Gaussian fitted to features, (n, d), which may come in pieces; n of at least 2."""
    count, mean, scatter = 0, torch.zeros(()), torch.zeros(())
    for piece in [pieces] if isinstance(pieces, Tensor) else pieces:
        if piece.ndim != 2 or not len(piece):
            raise BasisError(f"features must be (n, d), not {tuple(piece.shape)}")
        f = piece.double()
        centered, own = f - f.mean(dim=0), f.mean(dim=0)
        if not count:
            count, mean, scatter = len(f), own, centered.T @ centered
            continue
        total, apart = count + len(f), own - mean
        scatter = scatter + centered.T @ centered
        scatter = scatter + torch.outer(apart, apart) * (count * len(f) / total)
        count, mean = total, mean + apart * (len(f) / total)
    if count < 2:
        raise BasisError(f"a Gaussian needs the features of at least 2 images, not {count}")
    return Gaussian(mean, scatter / (count - 1), count)


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


def inception_score(pieces: Tensor | Iterable[Tensor], splits: int = 10) -> Score:
    """exp of the mean divergence of each image's class probabilities from their mean.

    Args:
        pieces: Class probabilities (n, classes), which may come in pieces.
        splits: Parts of the set; the score is the mean over them.
    """
    found = [pieces] if isinstance(pieces, Tensor) else list(pieces)
    probabilities = torch.cat(found).double().clamp_min(1e-16)
    if not 1 <= splits <= len(probabilities):
        raise BasisError(
            f"splits must be from 1 to the number of images ({len(probabilities)}), not {splits}"
        )
    scores = []
    for p in probabilities.tensor_split(splits):
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


class ImagePieces:
    """A set of images that is read in pieces.

    Args:
        images: (n, channels, height, width), uint8 or floats in [0, 1]; a tensor, or an array that
            may be on disk. With further axes before the last three, each entry is an image.
        count: At most this many of them.
    """

    def __init__(self, images: Any, count: int | None = None) -> None:
        self.images = images
        shape: Sequence[int] = images.shape
        self.per_row, self.shape = math.prod(shape[1:-3]), tuple(shape[-3:])
        whole = shape[0] * self.per_row
        self.count = whole if count is None else min(count, whole)

    def __len__(self) -> int:
        return self.count

    def take(self, indices: Tensor) -> Tensor:
        """The images with these indices, (n, channels, height, width)."""
        rows = []
        for index in indices.tolist():
            row = self.images[index // self.per_row]
            image = torch.as_tensor(row.copy() if hasattr(row, "copy") else row)
            rows.append(image.reshape(self.per_row, *self.shape)[index % self.per_row])
        return torch.stack(rows)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """All images in order, at most `size` at a time."""
        return (self.take(indices) for indices in torch.arange(len(self)).split(size))

    def blocks(self, size: int, seed: int) -> Iterator[Tensor]:
        """Blocks of `size` images in random order; the rest is left out."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for start in range(0, len(self) - size + 1, size):
            yield self.take(order[start : start + size])


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
    images: Tensor | ImagePieces,
    reference: Tensor | ImagePieces,
    *,
    splits: int = 10,
    block: int = 500,
    seed: int = 0,
) -> Comparison:
    """Distances of images from a reference set, and the images' score.

    Args:
        extractor: The network.
        images, reference: Sets of at least 2 images, (n, channels, height, width), uint8 or float
            in [0, 1].
        splits: Parts that the score is averaged over; at most n.
        block: Images in a block of the kernel distance.
        seed: Of the order in which images form blocks.
    """
    sets = [x if isinstance(x, ImagePieces) else ImagePieces(x) for x in (images, reference)]
    if min(map(len, sets)) < 2:
        raise BasisError("a distance needs at least 2 images in each set")
    probabilities: list[Tensor] = []

    def features(pieces: ImagePieces) -> Iterator[Tensor]:
        for piece in pieces.pieces(extractor.batch):
            found = extractor.extract(piece)
            if pieces is sets[0]:
                probabilities.append(found.probabilities)
            yield found.features

    gaussians = [gaussian_of(features(pieces)) for pieces in sets]
    size = min(block, *map(len, sets))
    blocks = [(extractor.extract(b).features for b in s.blocks(size, seed)) for s in sets]
    return Comparison(
        extractor.name,
        frechet_distance(*gaussians),
        kernel_distance(*blocks),
        inception_score(probabilities, min(splits, len(sets[0]))),
        len(sets[0]),
        len(sets[1]),
    )
