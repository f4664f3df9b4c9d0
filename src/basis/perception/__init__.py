"""Distances and scores that compare sets of images through the eyes of a network."""

from basis.perception._digits import Classifier, accuracy, train_classifier
from basis.perception._distance import (
    Gaussian,
    Score,
    frechet_distance,
    gaussian_of,
    inception_score,
)
from basis.perception._networks import (
    INCEPTION,
    NETWORKS,
    Comparison,
    Eyes,
    Seen,
    compare,
    load_inception,
    load_network,
    save_classifier,
)

__all__ = [
    "INCEPTION",
    "NETWORKS",
    "Classifier",
    "Comparison",
    "Eyes",
    "Gaussian",
    "Score",
    "Seen",
    "accuracy",
    "compare",
    "frechet_distance",
    "gaussian_of",
    "inception_score",
    "load_inception",
    "load_network",
    "save_classifier",
    "train_classifier",
]
