"""Test mixtures: which signals are added together, and how."""

import numpy as np
import pytest
import torch

from basis._mix import Pairs, draw_pairs
from basis.cli import main
from basis.errors import BasisError
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet
from basis.signals.old_observation import read_mixture


@pytest.mark.parametrize("size", [(4, 5), (16,), (2, 3, 4)])
def test_signals_of_any_shape_are_added(size):
    sources = torch.randn(3, 2, 2, *size, generator=torch.Generator().manual_seed(0))
    pairs = Pairs(sources, torch.zeros(3, 2, dtype=torch.int64))
    mixed = pairs.mix((0.5, -2.0))
    assert mixed.shape == (3, 2, *size)
    assert torch.allclose(mixed, 0.5 * sources[:, 0] - 2 * sources[:, 1], atol=1e-6)
    assert torch.allclose(pairs.average()[:, 1], sources.mean(dim=1), atol=1e-6)
    with pytest.raises(BasisError, match="3 alphas for 2 sources"):
        pairs.mix((1.0, 1.0, 1.0))


def test_longer_draws_begin_like_shorter_ones():
    images = load_images("sample")
    few, many = (draw_pairs(images, n, k=3, seed=4) for n in (5, 9))
    assert torch.equal(few.sources, many.sources[:5])
    assert all(len(set(row)) == 3 for row in many.indices.tolist())
    assert torch.equal(many.sources[7, 2], images.floats()[many.indices[7, 2]])
    split = draw_pairs(images, 20, protocol="split").indices
    labels = images.labels[split]
    assert (labels[:, 0] < 5).all() and (labels[:, 1] >= 5).all()


def test_sets_of_sound_are_drawn_from():
    sounds = torch.randn(6, 1, 32)
    pairs = draw_pairs(ImageSet(sounds, None, "sounds", "a test"), 4)
    assert torch.equal(pairs.sources[3, 1], sounds[pairs.indices[3, 1]])
    with pytest.raises(BasisError, match="no class groups"):
        draw_pairs(ImageSet(sounds, None, "sounds", "a test"), 4, protocol="split")


def test_sounds_are_mixed_on_the_command_line(tmp_path, capsys):
    sounds = np.random.default_rng(0).normal(size=(2, 1, 40)).astype(np.float32) * 3
    files = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for file, sound in zip(files, sounds, strict=True):
        np.save(file, sound)
    out = tmp_path / "m.npz"
    mix = ["mix", *files, "--alphas", "1", "-0.5", "--out", str(out)]
    assert main([*mix, "--dims", "1"]) == 0
    found = read_mixture(out)
    assert np.allclose(found.mixture[0], sounds[0] - 0.5 * sounds[1], atol=1e-6)
    assert np.array_equal(found.sources[0], sounds)
    assert "1 x" in capsys.readouterr().out
    # Without a word on their axes (1, 40) are pictures, which have values from 0 to 1.
    assert main(mix) == 2
    assert "--dims 1" in capsys.readouterr().err
    np.save(files[0], np.zeros((3, 1, 40)))
    assert main([*mix, "--dims", "1"]) == 2
    assert "holds 3 signals" in capsys.readouterr().err
