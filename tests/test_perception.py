"""Distances between sets of images, against closed forms and another library."""

import math

import pytest
import torch

from basis import BasisError, metrics
from basis.perception import frechet_distance, gaussian_of, inception_score


def test_frechet_distance_is_exact_for_known_gaussians():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(5000, 6, generator=g, dtype=torch.float64)
    a = gaussian_of(x)
    assert frechet_distance(a, a) == pytest.approx(0.0, abs=1e-9)
    shifted = gaussian_of(x + torch.arange(6.0))
    assert frechet_distance(a, shifted) == pytest.approx(55.0, rel=1e-9)
    # Scaling by 3 about the mean: tr(S + 9 S - 6 S) = 4 tr(S).
    scaled = gaussian_of(a.mean + 3 * (x - a.mean))
    assert frechet_distance(a, scaled) == pytest.approx(4 * a.covariance.trace().item(), rel=1e-6)


def test_frechet_distance_agrees_with_the_matrix_root():
    from scipy.linalg import sqrtm

    g = torch.Generator().manual_seed(1)
    a = gaussian_of(torch.randn(300, 8, generator=g) @ torch.randn(8, 8, generator=g))
    b = gaussian_of(torch.rand(200, 8, generator=g))
    root = sqrtm((a.covariance @ b.covariance).numpy()).real.trace()
    exact = (
        (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * root
    )
    assert frechet_distance(a, b) == pytest.approx(exact.item(), rel=1e-6)
    few = gaussian_of(torch.rand(4, 8, generator=g))  # fewer images than features
    assert math.isfinite(frechet_distance(a, few))
    with pytest.raises(BasisError, match="at least 2"):
        gaussian_of(torch.rand(1, 8))


def test_score_runs_from_one_to_the_number_of_classes():
    same = torch.full((40, 10), 0.1)
    assert inception_score(same, 4).mean == pytest.approx(1.0)
    sure = torch.eye(10).repeat(4, 1)
    assert inception_score(sure, 4).mean == pytest.approx(10.0, rel=1e-6)
    with pytest.raises(BasisError, match="splits"):
        inception_score(same, 50)


def test_ssim_agrees_with_another_library():
    reference = pytest.importorskip("torchmetrics.functional.image")
    g = torch.Generator().manual_seed(0)
    truth = torch.rand(3, 2, 1, 28, 28, generator=g)
    estimate = (truth + 0.1 * torch.randn(truth.shape, generator=g)).clamp(0, 1)
    ours = metrics.ssim(estimate.flip(1), truth)
    _, full = reference.structural_similarity_index_measure(
        estimate.flatten(0, 1), truth.flatten(0, 1), data_range=1.0, return_full_image=True
    )
    # Theirs goes on over the border, with mirrored pixels.
    theirs = full[..., 5:-5, 5:-5].flatten(1).mean(dim=1).view(3, 2).mean(dim=1)
    assert ours.tolist() == pytest.approx(theirs.tolist(), abs=1e-5)
    assert metrics.ssim(truth, truth).tolist() == pytest.approx([1.0] * 3)
    assert metrics.residual_steps(torch.tensor([1 / 255])).item() == pytest.approx(1.0)
