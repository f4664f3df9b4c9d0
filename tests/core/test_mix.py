import numpy as np
import pytest
import torch

import basis
from basis import BasisError
from basis._mix import Pairs, draw_pairs
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet


def test_sources_are_added(tmp_path):
    g = torch.Generator().manual_seed(0)
    sources = torch.randn(3, 2, 2, 16, generator=g)
    mixed = basis.mix(sources, (0.5, -2.0))
    assert torch.allclose(mixed.values, 0.5 * sources[:, 0] - 2 * sources[:, 1], atol=1e-6)
    assert torch.equal(mixed.sources, sources) and mixed.alphas.tolist() == [0.5, -2.0]
    noisy = basis.mix(sources, noise=0.1)
    assert (noisy.values - sources.sum(dim=1)).std().item() == pytest.approx(0.1, rel=0.3)
    digits = basis.mix(["sample:3", "sample:18"], clip=True)
    assert digits.values.shape == (1, 1, 28, 28) and digits.values.max() <= 1
    np.save(tmp_path / "a.npy", sources[0, 0].numpy())
    np.save(tmp_path / "b.npy", np.zeros((4, 1, 9), np.float32))
    for given, named in [
        ([torch.rand(1, 4, 4), torch.rand(1, 5, 5)], "5, 5"),
        (["sample:3", "sample:9999"], "9999"),
        ([str(tmp_path / "b.npy")], "4 signals"),
    ]:
        with pytest.raises(BasisError, match=named):
            basis.mix(given)
    with pytest.raises(BasisError, match="3 alphas for 2 sources"):
        basis.mix(sources, (1.0, 1.0, 1.0))
    with pytest.raises(BasisError, match="noise"):
        basis.mix(sources, noise=-1.0)


def test_pictures_are_converted_to_one_shape(tmp_path):
    photo, grey = torch.rand(3, 12, 18), torch.rand(1, 10, 10)
    with pytest.raises(BasisError, match="size"):
        basis.mix([photo, grey])
    mixed = basis.mix([photo, grey], (0.5, 0.5), size=8, color=True)
    assert mixed.values.shape == (1, 3, 8, 8)
    assert torch.equal(mixed.sources[0, 0], basis.read(photo, size=8).values)
    assert torch.equal(mixed.sources[0, 1, 0], mixed.sources[0, 1, 2])
    assert basis.mix(["sample:3", photo], grey=True, size=28).values.shape == (1, 1, 28, 28)
    assert basis.mix(torch.rand(2, 3, 3, 8, 8), grey=True).sources.shape == (2, 3, 1, 8, 8)


@pytest.mark.parametrize("size", [(4, 5), (16,), (2, 3, 4)])
def test_the_trivial_baseline(size):
    sources = torch.randn(3, 2, 2, *size, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(sources, torch.zeros(3, 2, dtype=torch.int64))
    assert torch.allclose(pairs.average()[:, 1], sources.mean(dim=1), atol=1e-6)
    assert torch.allclose(pairs.mix((1.0, 1.0)), sources.sum(dim=1), atol=1e-6)


def test_longer_draws_begin_like_shorter_ones():
    images = load_images("sample")
    few, many = (draw_pairs(images, n, k=3, seed=4) for n in (5, 9))
    assert torch.equal(few.sources, many.sources[:5])
    assert all(len(set(row)) == 3 for row in many.indices.tolist())
    assert torch.equal(many.sources[7, 2], images.floats()[many.indices[7, 2]])
    split = draw_pairs(images, 20, protocol="split").indices
    labels = images.labels[split]
    assert (labels[:, 0] < 5).all() and (labels[:, 1] >= 5).all()
    assert torch.equal(basis.test_mixtures("sample", 5, sources=3, seed=4).sources, few.sources)


def test_sets_of_sound_are_mixed():
    sounds = torch.randn(6, 1, 32)
    data = ImageSet(sounds, None, "sounds", "a test")
    pairs = draw_pairs(data, 4)
    assert torch.equal(pairs.sources[3, 1], sounds[pairs.indices[3, 1]])
    with pytest.raises(BasisError, match="sounds"):
        draw_pairs(data, 4, protocol="split")
    for arguments in ({"count": 0}, {"count": 10**8}, {"count": 1, "k": 7}):
        with pytest.raises(BasisError):
            draw_pairs(data, **arguments)


def test_images_of_data_sets_are_named_everywhere():
    digits = load_images("sample")
    read = basis.read("sample:3")
    assert torch.equal(read.values, digits[3]) and read.names == ("sample-3",)
    both = basis.read(["sample:3", "sample:4"])
    assert torch.equal(both.values, digits[3:5]) and both.names == ("sample-3", "sample-4")
    with pytest.raises(BasisError, match="test images 0 to"):
        basis.read("sample:9999")
