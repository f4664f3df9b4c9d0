"""The other methods do what they say, on small problems with known answers."""

import sys

import pytest
import torch

from basis.errors import BasisError
from basis.lab.baseline import Average, FitOptions
from basis.lab.baselines import BASELINES, NES, NMF, SD, Regression, invariant_error
from basis.metrics import psnr
from basis.signals.datasets import load_images


def bars(count, vertical, generator):
    """Pictures of one or two bright bars, all upright or all level."""
    x = torch.zeros(count, 1, 8, 8)
    for picture in x:
        for at in torch.randperm(8, generator=generator)[:2]:
            if vertical:
                picture[0, :, at] = 1
            else:
                picture[0, at] = 1
    return x


@pytest.fixture(scope="module")
def groups():
    g = torch.Generator().manual_seed(0)
    return bars(400, True, g), bars(400, False, g)


@pytest.fixture(scope="module")
def task():
    g = torch.Generator().manual_seed(1)
    return torch.stack([bars(16, True, g), bars(16, False, g)], dim=1)


def test_average_is_the_mixture_divided(task):
    out = Average(2).separate(task.sum(dim=1))
    assert torch.allclose(out.sum(dim=1), task.sum(dim=1)) and torch.equal(out[:, 0], out[:, 1])


@pytest.mark.parametrize(
    ("method", "gain"),
    [
        (NMF(parts=8), 6.0),
        (Regression(images=14_000, batch=64), 4.0),
        (NES(supervised=True, images=14_000, batch=64), 4.0),
        (NES(rounds=2, images=30_000, batch=64, mixtures=1000), 3.0),
        pytest.param(
            SD(latent=16, width=16, images=60_000, starts=8, steps=150), 0.5, marks=pytest.mark.slow
        ),
    ],
    ids=["nmf", "regression", "nes-supervised", "nes", "s-d"],
)
def test_each_tells_upright_bars_from_level_ones(method, gain, groups, task):
    """Two classes that share no picture: every method must beat the average, by what it can do."""
    shares = []
    method.fit(groups, FitOptions(0.3, 0, shares.append))
    mixture = task.sum(dim=1)
    out = method.separate(mixture, seed=0)
    assert out.shape == task.shape and shares[-1] == pytest.approx(1.0)
    average = Average(2).separate(mixture)
    assert psnr(out, task, permute=True).mean() > psnr(average, task, permute=True).mean() + gain
    assert torch.equal(out, method.separate(mixture, seed=0))


def test_parts_of_one_dictionary_cannot_tell_sources_apart():
    """The class-agnostic task: the same digits for both, and nothing to go by."""
    digits = load_images("sample", "test").images.float() / 255
    method = NMF(parts=20)
    method.fit((digits, digits), FitOptions(0.1))
    assert torch.equal(method.dictionaries[0], method.dictionaries[1])
    truth = digits[:16].view(8, 2, 1, 28, 28)
    out = method.separate(truth.sum(dim=1))
    assert torch.allclose(out.sum(dim=1), truth.sum(dim=1), atol=1e-4)
    assert psnr(out, truth, permute=True).mean() < 18


def test_the_order_of_sources_does_not_matter_to_the_loss():
    x = torch.rand(5, 3, 1, 4, 4)
    shuffled = x[:, [2, 0, 1]]
    assert invariant_error(shuffled, x).item() == pytest.approx(0.0)
    near = x.clone()
    near[:, 0] += 0.1
    assert invariant_error(near[:, [1, 2, 0]], x).item() == pytest.approx(0.01 / 3, rel=1e-4)


def test_every_baseline_has_a_title():
    titles = [make().title for make in BASELINES.values()]
    assert all(titles) and len(set(titles)) == len(titles)


def test_average_and_nmf_take_signals_of_any_shape():
    """Two kinds of non-negative sound that share no part: the factorisation tells them apart."""
    g = torch.Generator().manual_seed(0)
    parts = torch.rand(2, 3, 40, generator=g)
    parts[0, :, 20:], parts[1, :, :20] = 0, 0
    kinds = [(torch.rand(300, 3, generator=g) @ p).view(300, 1, 40) for p in parts]
    truth = torch.stack([kind[:16] for kind in kinds], dim=1)
    mixture = truth.sum(dim=1)
    halves = Average(2).separate(mixture)
    assert halves.shape == truth.shape and torch.allclose(halves[:, 0], mixture / 2)
    method = NMF(parts=3)
    method.fit(kinds, FitOptions(0.5))
    out = method.separate(mixture)
    assert out.shape == truth.shape
    assert (out - truth).square().mean() < 1e-3 * (halves - truth).square().mean()


@pytest.mark.parametrize("name", ["s-d", "nes", "nes-supervised", "regression"])
def test_networks_of_pictures_refuse_other_signals(name):
    sound = torch.rand(8, 1, 40)
    with pytest.raises(BasisError, match=r"needs pictures .* not signals of shape \(1, 40\)"):
        BASELINES[name]().fit((sound, sound), FitOptions(0.01))


def test_unusable_calls_are_refused(monkeypatch):
    digits = torch.rand(8, 1, 4, 4)
    for name in ("nmf", "s-d", "nes", "regression"):
        with pytest.raises(BasisError, match="call fit first"):
            BASELINES[name]().separate(digits)
    with pytest.raises(BasisError, match="at least 0"):
        NMF(parts=2).fit((digits - 1, digits), FitOptions(0.1))
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    with pytest.raises(BasisError, match=r"basis-separation\[baselines\]"):
        NMF(parts=2).fit((digits, digits), FitOptions(0.1))
