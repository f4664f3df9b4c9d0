"""A network as a feature extractor: images to feature vectors and class probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from basis.errors import BasisError


@dataclass(frozen=True)
class Features:
    """Features (n, d) and class probabilities (n, classes) of a set of images."""

    features: Tensor
    probabilities: Tensor


class FeatureExtractor:
    """A network whose features and class probabilities compare sets of images.

    Args:
        name: What its distances are called by.
        module: Images in [0, 1], (batch, channels, height, width), to features and class logits.
        channels: The channels that the network takes. Grey images are repeated for a network of
            colour images; colour images are refused by a network of grey ones.
        batch: Images at once.
        side: The side of the images that the network takes; None for any.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        channels: int,
        batch: int = 64,
        side: int | None = None,
    ) -> None:
        self.name, self.channels, self.batch, self.side = name, channels, batch, side
        self.module = module.eval().requires_grad_(False)

    @property
    def distance_name(self) -> str:
        """What the Fréchet distance by this network is called: FID for Inception alone."""
        return "FID" if self.name == "inception" else f"Fréchet distance ({self.name})"

    @property
    def score_name(self) -> str:
        """What the score by this network is called: Inception Score for Inception alone."""
        return "Inception Score" if self.name == "inception" else f"class score ({self.name})"

    def extract(self, images: Tensor) -> Features:
        """Features and class probabilities of images.

        Args:
            images: (n, channels, height, width), uint8 or float in [0, 1].
        """
        features, probabilities = [], []
        with torch.inference_mode():
            for x in images.split(self.batch):
                x = x.float().div(255) if x.dtype == torch.uint8 else x.float().clamp(0, 1)
                f, logits = self.module(self._fit_channels(x))
                features.append(f)
                probabilities.append(logits.softmax(dim=1))
        return Features(torch.cat(features), torch.cat(probabilities))

    def _fit_channels(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise BasisError(
                f"{self.name} takes pictures (n, channels, height, width), not {tuple(x.shape)}"
            )
        if x.shape[1] in (1, self.channels):
            self._check_side(x)
        if x.shape[1] == self.channels:
            return x
        if x.shape[1] == 1:
            return x.expand(-1, self.channels, -1, -1)
        raise BasisError(
            f"{self.name} takes images of {self.channels} channel(s), not {x.shape[1]}; "
            "networks of colour images are efficientnet-lite0 and inception (--network)"
        )

    def _check_side(self, x: Tensor) -> None:
        if self.side is not None and tuple(x.shape[2:]) != (self.side, self.side):
            raise BasisError(
                f"{self.name} takes images of {self.side}x{self.side} pixels, not "
                f"{x.shape[3]}x{x.shape[2]}; --size {self.side} cuts and scales them"
            )


@dataclass(frozen=True)
class Gaussian:
    """Mean (d,) and covariance (d, d) of a set's features, in float64, and the number of images."""

    mean: Tensor
    covariance: Tensor
    count: int


def gaussian_of(features: Tensor) -> Gaussian:
    """The Gaussian fitted to features, (n, d); n of at least 2."""
    if features.ndim != 2 or len(features) < 2:
        raise BasisError(
            f"features must be (n, d) with n of at least 2, not {tuple(features.shape)}"
        )
    f = features.double()
    return Gaussian(f.mean(dim=0), f.T.cov(), len(f))


def frechet_distance(a: Gaussian, b: Gaussian) -> float:
    """|mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2)).

    The trace of the root is the sum of the roots of the eigenvalues of A B, which are those of the
    symmetric A^(1/2) B A^(1/2): no matrix root of a product that is not symmetric is needed, and
    ranks below d do no harm. (torchmetrics' helper is private to it and takes the eigenvalues of
    the product A B, which rounding makes complex where ranks are low.)
    """
    try:
        values, vectors = torch.linalg.eigh(a.covariance)
        root = vectors * values.clamp_min(0).sqrt() @ vectors.T
        crossed = torch.linalg.eigvalsh(root @ b.covariance @ root).clamp_min(0).sqrt().sum()
    except RuntimeError as error:  # torch.linalg.LinAlgError is one, and not exported
        raise BasisError(
            "features that are no finite numbers, or too far apart in size, have no distance; are "
            "the network's weights sound?"
        ) from error
    spread = a.covariance.trace() + b.covariance.trace() - 2 * crossed
    return max(0.0, ((a.mean - b.mean).square().sum() + spread).item())


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation over splits."""

    mean: float
    deviation: float


def inception_score(probabilities: Tensor, splits: int = 10) -> Score:
    """exp of the mean divergence of each image's class probabilities from their mean.

    Args:
        probabilities: (n, classes).
        splits: Parts of the set; the answer is the mean and deviation over them.
    """
    if not 1 <= splits <= len(probabilities):
        raise BasisError(
            f"splits must be from 1 to the number of images ({len(probabilities)}), not {splits}"
        )
    scores = []
    for part in probabilities.double().tensor_split(splits):
        p = part.clamp_min(1e-16)
        marginal = p.mean(dim=0, keepdim=True)
        scores.append((p * (p.log() - marginal.log())).sum(dim=1).mean().exp())
    values = torch.stack(scores)
    return Score(values.mean().item(), values.std().item() if splits > 1 else math.nan)


class RunningGaussian:
    """The Gaussian fitted to features that come in pieces: `gaussian_of` without all of them."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None
        self.scatter: Tensor | None = None

    def add(self, features: Tensor) -> None:
        """Takes in features, (n, d)."""
        f = features.double()
        if f.ndim != 2 or not len(f):
            raise BasisError(f"features must be (n, d) with n of at least 1, not {tuple(f.shape)}")
        mean = f.mean(dim=0)
        centred = f - mean
        scatter = centred.T @ centred
        if self.mean is None or self.scatter is None:
            self.count, self.mean, self.scatter = len(f), mean, scatter
            return
        total = self.count + len(f)
        apart = mean - self.mean
        self.scatter += scatter + torch.outer(apart, apart) * (self.count * len(f) / total)
        self.mean = self.mean + apart * (len(f) / total)
        self.count = total

    def gaussian(self) -> Gaussian:
        """The Gaussian of everything taken in so far; of at least two."""
        if self.mean is None or self.scatter is None or self.count < 2:
            raise BasisError(f"a Gaussian needs two or more images, not {self.count}")
        return Gaussian(self.mean.clone(), self.scatter / (self.count - 1), self.count)


class RunningScore:
    """The score of class probabilities that come in pieces, in the order of the set.

    Args:
        count: Images in all.
        splits: Parts of the set; those of `inception_score`.
    """

    def __init__(self, count: int, splits: int = 10) -> None:
        if not 1 <= splits <= count:
            raise BasisError(
                f"splits must be from 1 to the number of images ({count}), not {splits}"
            )
        sizes = [len(part) for part in torch.empty(count, 0).tensor_split(splits)]
        self.ends = torch.tensor(sizes).cumsum(0).tolist()
        self.sizes, self.seen = sizes, 0
        self.entropy = [0.0] * splits
        self.total: list[Tensor | float] = [0.0] * splits

    def add(self, probabilities: Tensor) -> None:
        """Takes in the probabilities (n, classes) of the next images."""
        p = probabilities.double().clamp_min(1e-16)
        while len(p):
            split = next((i for i, end in enumerate(self.ends) if self.seen < end), None)
            if split is None:
                raise BasisError(f"more images came than the {self.ends[-1]} that were announced")
            here, p = p[: self.ends[split] - self.seen], p[self.ends[split] - self.seen :]
            self.entropy[split] += (here * here.log()).sum().item()
            self.total[split] = self.total[split] + here.sum(dim=0)
            self.seen += len(here)

    def score(self) -> Score:
        """The score of everything; all images must have come."""
        if self.seen != self.ends[-1]:
            raise BasisError(f"{self.seen} of {self.ends[-1]} images came")
        values = []
        for entropy, total, size in zip(self.entropy, self.total, self.sizes, strict=True):
            assert isinstance(total, Tensor)
            values.append(math.exp((entropy - (total * (total / size).log()).sum().item()) / size))
        found = torch.tensor(values, dtype=torch.float64)
        return Score(found.mean().item(), found.std().item() if len(values) > 1 else math.nan)


@dataclass(frozen=True)
class KernelDistance:
    """Squared maximum mean discrepancy, its standard error over blocks, and their number."""

    distance: float
    error: float
    blocks: int


def kernel_distance(a: Iterable[Tensor], b: Iterable[Tensor]) -> KernelDistance:
    """The kernel distance of two sets of features, block by block.

    Args:
        a, b: Blocks of features, (n, d) with n of at least 2; one of each is in memory at a time.
            Images must be in no order, or blocks are sets of their own. Blocks of one set that have
            no counterpart are left out.
    """
    found = torch.tensor([_block_distance(x, y) for x, y in zip(a, b, strict=False)])
    if not len(found):
        raise BasisError("a kernel distance needs at least one block of features of either set")
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

    xx, yy = kernel(x, x), kernel(y, y)
    within = (xx.sum() - xx.trace()) / (len(x) * (len(x) - 1))
    within += (yy.sum() - yy.trace()) / (len(y) * (len(y) - 1))
    return (within - 2 * kernel(x, y).mean()).item()


@dataclass(frozen=True)
class StreamedComparison:
    """How a set of images compares with another, by the features of `network`.

    Attributes:
        distance: Fréchet distance of the features.
        kernel: Kernel distance of the features.
        score: Class score of the images.
        count, reference: Images in either set.
    """

    network: str
    distance: float
    kernel: KernelDistance
    score: Score
    count: int
    reference: int


class ImagePieces:
    """A set of images, read a piece at a time.

    Args:
        images: (n, channels, height, width), uint8 or floats in [0, 1]; a tensor, or an array that
            may lie on disk. More axes in front are so many more images.
        count: At most so many of them.
    """

    def __init__(self, images: Tensor | object, count: int | None = None) -> None:
        self.images = images
        shape: Sequence[int] = images.shape  # type: ignore[union-attr]
        self.per_row = math.prod(shape[1:-3])
        self.shape = tuple(shape[-3:])
        whole = shape[0] * self.per_row
        self.count = whole if count is None else min(count, whole)

    def __len__(self) -> int:
        return self.count

    def take(self, places: Tensor) -> Tensor:
        """The images at these places, (n, channels, height, width); blank ones as zeros."""
        rows = []
        for place in places.tolist():
            row = self.images[place // self.per_row]  # type: ignore[index]
            image = torch.as_tensor(row.copy() if hasattr(row, "copy") else row)
            rows.append(image.reshape(self.per_row, *self.shape)[place % self.per_row])
        return torch.stack(rows)


def compare_streams(
    extractor: FeatureExtractor,
    images: ImagePieces,
    reference: ImagePieces,
    *,
    splits: int = 10,
    block: int = 500,
    seed: int = 0,
) -> StreamedComparison:
    """`compare`, with the kernel distance as well, for sets of any size in the memory of a block.

    Args:
        extractor: The network that features are taken from.
        images, reference: The two sets.
        splits: Parts that the score is averaged over.
        block: Images in a block of the kernel distance.
        seed: Of the order in which images form blocks.
    """

    gaussians = RunningGaussian(), RunningGaussian()
    score = RunningScore(len(images), min(splits, len(images)))
    for pieces, gaussian in zip((images, reference), gaussians, strict=True):
        for places in torch.arange(len(pieces)).split(extractor.batch):
            found = extractor.extract(pieces.take(places))
            gaussian.add(found.features)
            if pieces is images:
                score.add(found.probabilities)
    size = min(block, len(images), len(reference))
    blocks = [_blocks(extractor, pieces, size, seed) for pieces in (images, reference)]
    return StreamedComparison(
        extractor.name,
        frechet_distance(gaussians[0].gaussian(), gaussians[1].gaussian()),
        kernel_distance(*blocks),
        score.score(),
        len(images),
        len(reference),
    )


def _blocks(
    extractor: FeatureExtractor, pieces: ImagePieces, size: int, seed: int
) -> Iterable[Tensor]:
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(seed))
    for start in range(0, len(pieces) - size + 1, size):
        yield extractor.extract(pieces.take(order[start : start + size])).features


@dataclass(frozen=True)
class Comparison:
    """How a set of images compares with another by the features of `network`.

    Attributes:
        distance: Fréchet distance of the features.
        score: exp of the mean divergence of class probabilities, over splits.
        count, reference: Images in either set.
    """

    network: str
    distance: float
    score: Score
    count: int
    reference: int


def compare(
    extractor: FeatureExtractor,
    images: Tensor,
    reference: Tensor | Gaussian,
    *,
    splits: int = 10,
) -> Comparison:
    """Distance of images from a reference set, and the images' score.

    Args:
        extractor: The network that features are taken from.
        images: (n, channels, height, width), uint8 or float in [0, 1].
        reference: Images too, or the Gaussian of their features where it is known already.
        splits: Parts that the score is averaged over; at most n.
    """
    found = extractor.extract(images)
    if isinstance(reference, Tensor):
        reference = gaussian_of(extractor.extract(reference).features)
    return Comparison(
        extractor.name,
        frechet_distance(gaussian_of(found.features), reference),
        inception_score(found.probabilities, min(splits, len(images))),
        len(images),
        reference.count,
    )
