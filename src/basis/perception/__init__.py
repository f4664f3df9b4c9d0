"""Distances and scores that compare sets of images by the features of a network."""

from basis.perception._classifier import Classifier, accuracy, train_classifier
from basis.perception._comparison import Comparison, compare
from basis.perception._distance import (
    Gaussian,
    Score,
    frechet_distance,
    gaussian_of,
    inception_score,
)
from basis.perception._feature_extractor import FeatureExtractor, Features
from basis.perception._inception import InceptionV3
from basis.perception._networks import (
    INCEPTION,
    NETWORKS,
    fetch_weights,
    load_inception,
    load_network,
    save_classifier,
)
from basis.perception._streaming import (
    ImagePieces,
    KernelDistance,
    RunningGaussian,
    RunningScore,
    StreamedComparison,
    compare_streams,
    kernel_distance,
)

__all__ = [
    "INCEPTION",
    "NETWORKS",
    "Classifier",
    "Comparison",
    "FeatureExtractor",
    "Features",
    "Gaussian",
    "ImagePieces",
    "InceptionV3",
    "KernelDistance",
    "RunningGaussian",
    "RunningScore",
    "Score",
    "StreamedComparison",
    "accuracy",
    "compare",
    "compare_streams",
    "fetch_weights",
    "frechet_distance",
    "gaussian_of",
    "inception_score",
    "kernel_distance",
    "load_inception",
    "load_network",
    "save_classifier",
    "train_classifier",
]
