"""Large images in tiles: exact for independent pixels, and without seams."""

import itertools

import pytest
import torch

import basis
from basis.errors import BasisError
from basis.priors.gaussian import GaussianMixture
from basis.priors.tiled import Tiled, starts


def test_tiles_cover_the_image_and_overlap():
    for side in range(8, 60):
        begin = starts(side, 8, 3)
        assert begin[0] == 0 and begin[-1] == side - 8
        assert all(0 < b - a <= 5 for a, b in itertools.pairwise(begin))


@pytest.fixture
def pixels():
    """Independent pixels of one distribution, for which a tile is as good as the whole image."""
    mean = torch.full((1, 1, 4, 4), 0.3, dtype=torch.float64)
    return GaussianMixture(mean, 0.04 * torch.eye(16, dtype=torch.float64)[None], torch.ones(1))


def test_independent_pixels_are_denoised_exactly(pixels):
    tiled = Tiled(pixels, 7, 10)
    x = torch.rand(2, 1, 7, 10, dtype=torch.float64)
    sigma = torch.tensor([0.1, 0.5], dtype=torch.float64)
    share = (0.04 / (0.04 + sigma**2)).view(-1, 1, 1, 1)
    assert torch.allclose(tiled.denoise(x, sigma), 0.3 + share * (x - 0.3))
    mean, variance = tiled.moments(x, sigma)
    assert torch.allclose(mean, tiled.denoise(x, sigma))
    assert variance.shape == x.shape
    assert tiled.evaluations == len(tiled.corners) * pixels.evaluations
    assert tiled.describe()["tiles"] == len(tiled.corners)


def test_an_image_of_a_tiles_size_is_one_tile(pixels):
    x = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    tiled = Tiled(pixels, 4, 4)
    assert len(tiled.corners) == 1
    assert torch.allclose(tiled.denoise(x, 0.2), pixels.denoise(x, 0.2))


def test_large_mixtures_are_separated(pixels):
    g = torch.Generator().manual_seed(0)
    truth = torch.rand(1, 2, 1, 9, 9, generator=g, dtype=torch.float64)
    result = basis.separate(truth.sum(dim=1), Tiled(pixels, 9, 9), method="gibbs")
    assert result.sources.shape == truth.shape and result.residual.max() < 1 / 255


def test_digits_side_by_side_leave_no_seam():
    """Two adjacent digits under the prior of one: no edge between tiles."""
    from basis.signals.datasets import load_images

    digits = load_images("sample").floats(torch.arange(4))
    wide = torch.cat([digits[:2], digits[2:]], dim=3)  # 28 x 56
    tiled = Tiled(basis.Prior.from_pretrained("mnist"), 28, 56)
    noise = torch.randn(wide.shape, generator=torch.Generator().manual_seed(0))
    answer = tiled.denoise(wide + 0.3 * noise, 0.3)
    error = (answer - wide).square()
    assert error.mean() < 0.02
    steps = (answer[..., 1:] - answer[..., :-1]).abs().mean(dim=(0, 1, 2))
    edges = [left for _, left in tiled.corners if left]
    assert steps[[e - 1 for e in edges]].mean() < 2 * steps.mean()


def test_images_below_a_tile_are_refused(pixels):
    with pytest.raises(BasisError, match="smaller than those of prior"):
        Tiled(pixels, 3, 9)
    with pytest.raises(BasisError, match="cannot overlap by 4"):
        Tiled(pixels, 9, 9, overlap=4)
