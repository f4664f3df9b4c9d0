"""How a set of images compares with another."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from basis.perception._distance import (
    Gaussian,
    Score,
    frechet_distance,
    gaussian_of,
    inception_score,
)
from basis.perception._feature_extractor import FeatureExtractor


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
