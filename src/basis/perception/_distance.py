"""The Fréchet distance of two sets of features, and the score of class probabilities.

The Fréchet distance between Gaussians fitted to two sets of features is called FID, and the score
of class probabilities IS, only when the network is the Inception-v3 of the FID authors. With any
other network the number has that network's name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from basis._errors import BasisError


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
