"""Distances between sets of features, against closed forms and another library."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from basis.cli import main
from basis.errors import BasisError
from basis.lab.features import (
    FeatureExtractor,
    compare,
    frechet_distance,
    gaussian_of,
    inception_score,
    kernel_distance,
)


class Tiny(nn.Module):
    def forward(self, x):
        flat = x.flatten(1)
        return flat[:, :6], flat[:, 6:10]


def images(count, seed=0):
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


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


def test_the_kernel_distance_by_its_definition():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 3, generator=g), torch.randn(9, 3, generator=g) + 0.5
    k = lambda a, b: (a @ b / 3 + 1).item() ** 3  # noqa: E731
    xx = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    yy = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    xy = np.mean([k(a, b) for a in x for b in y])
    assert kernel_distance([x], [y]).distance == pytest.approx(xx + yy - 2 * xy, rel=1e-5)


def test_the_kernel_distance_is_unbiased():
    g = torch.Generator().manual_seed(0)
    same = [torch.randn(50, 3, generator=g) for _ in range(400)]
    found = kernel_distance(same[:200], same[200:])
    assert found.blocks == 200 and abs(found.distance) < 4 * found.error
    moved = kernel_distance(same[:200], [x + 0.3 for x in same[200:]])
    assert moved.distance > 10 * moved.error


def test_sets_on_disk_compare_as_in_memory(tmp_path):
    a, b = images(130), images(90, 1).sqrt()
    np.save(tmp_path / "a.npy", a.reshape(65, 2, 1, 4, 4).numpy())  # as a store of pairs has them
    on_disk = np.load(tmp_path / "a.npy", mmap_mode="r")
    extractor = FeatureExtractor("tiny", Tiny(), 1, batch=16)
    found = compare(extractor, on_disk, b, block=30)
    assert found == compare(extractor, a, b, block=30)
    assert (found.count, found.reference, found.kernel.blocks) == (130, 90, 3)
    whole = [gaussian_of(extractor.extract(x).features) for x in (a, b)]
    assert found.distance == pytest.approx(frechet_distance(*whole), rel=1e-9)
    assert compare(extractor, on_disk, b, count=31).count == 31
    with pytest.raises(BasisError, match="at least 2"):
        compare(extractor, a[:1], b)


def test_the_command_compares_folders_of_jobs(tmp_path, capsys):
    words = ["separate", "sample", "--count", "4", "--job", "--method", "12"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main(["lab", "distance", str(tmp_path / "a"), "sample"]) == 0
    printed = capsys.readouterr().out
    assert "(8 images, 512 of reference)" in printed and "kernel distance" in printed
