"""Statistics of sets larger than memory are those of the whole sets."""

import numpy as np
import pytest
import torch
from torch import nn

from basis.cli import main
from basis.errors import BasisError
from basis.lab.features import (
    FeatureExtractor,
    ImagePieces,
    RunningGaussian,
    RunningScore,
    compare,
    compare_streams,
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


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_gaussian_is_that_of_the_whole(piece):
    features = 5 + 1e-3 * torch.randn(333, 6, generator=torch.Generator().manual_seed(0)).double()
    running = RunningGaussian()
    for part in features.split(piece):
        running.add(part)
    found, whole = running.gaussian(), gaussian_of(features)
    assert found.count == 333
    assert torch.allclose(found.mean, whole.mean, rtol=1e-12)
    assert torch.allclose(found.covariance, whole.covariance, rtol=1e-9, atol=1e-18)
    with pytest.raises(BasisError, match="two or more"):
        RunningGaussian().gaussian()


@pytest.mark.parametrize("splits", [1, 3, 10])
def test_the_score_is_that_of_the_whole(splits):
    p = torch.randn(101, 4, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    running = RunningScore(101, splits)
    for part in p.split(7):
        running.add(part)
    found, whole = running.score(), inception_score(p, splits)
    assert found.mean == pytest.approx(whole.mean, rel=1e-12)
    assert found.deviation == pytest.approx(whole.deviation, rel=1e-9, nan_ok=True)
    with pytest.raises(BasisError, match="more images"):
        running.add(p[:1])


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


def test_streams_compare_as_sets_do(tmp_path):
    a, b = images(130), images(90, 1).sqrt()
    np.save(tmp_path / "a.npy", a.reshape(65, 2, 1, 4, 4).numpy())  # as a store of pairs has them
    on_disk = np.load(tmp_path / "a.npy", mmap_mode="r")
    extractor = FeatureExtractor("tiny", Tiny(), 1, batch=16)
    found = compare_streams(extractor, ImagePieces(on_disk), ImagePieces(b), block=30)
    whole = compare(extractor, a, b)
    assert found.distance == pytest.approx(whole.distance, rel=1e-9)
    assert found.score.mean == pytest.approx(whole.score.mean, rel=1e-9)
    assert (found.count, found.reference, found.kernel.blocks) == (130, 90, 3)


def test_the_distance_of_a_store(tmp_path, capsys):
    words = ["separate", "sample", "--count", "4", "--job", "--effort", "12"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert main(["distance", str(tmp_path / "a"), "sample"]) == 0
    told = capsys.readouterr().out
    assert "(8 images, 512 of reference)" in told and "kernel distance" in told
