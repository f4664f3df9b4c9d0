"""How sure a model with a likelihood is: a small network beside its density."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.nn.variance import VarianceNetwork, variance_config
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.tiled import Tiled
from basis.store.folder import update_card
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.run import train
from basis.training.variance import fit_variance

SHAPE = (1, 8, 8)


class HalfSure(nn.Module):
    """Values of mean 0.5 that are independent, spread widely on the left and narrowly on the
    right.
    """

    config = SimpleNamespace(mean=0.5, std=0.2)

    def __init__(self):
        super().__init__()
        spread = torch.full(SHAPE, 0.02)
        spread[..., :4] = 0.3
        self.spread = nn.Parameter(spread, requires_grad=False)

    def log_prob(self, x, sigma):
        variance = self.spread.square() + sigma.view(-1, 1, 1, 1).square()
        return -0.5 * ((x - 0.5).square() / variance + variance.log()).flatten(1).sum(dim=1)


def small_flow(folder, *more, images=64):
    words = ["train", "--data", "sample", "--kind", "glow", "--out", folder]
    words += ["--images", images, "--batch-size", 32, "--width", 8, "--depth", 1, "--held-out", 16]
    words += ["--sigma-max", 1.0, "--warmup", 32, "--energy-pairs", 0, *more]
    return main([str(w) for w in words])


def test_the_variance_of_a_known_density_is_learned():
    g = torch.Generator().manual_seed(0)
    model = HalfSure()
    data = 0.5 + model.spread * torch.randn(512, *SHAPE, generator=g)
    losses = fit_variance(
        model, data, count=64 * 120, sigma_min=0.05, sigma_max=1.0, batch_size=64, progress=False
    )
    assert len(losses) == 120 and sum(losses[-20:]) < sum(losses[:20])
    prior = LikelihoodPrior(model, SHAPE, 0.05, 1.0)
    for sigma in (0.1, 0.3):
        x = data[:64] + sigma * torch.randn(64, *SHAPE, generator=g)
        mean, variance = prior.moments(x, sigma)
        assert torch.allclose(mean, prior.denoise(x, sigma), atol=1e-6)
        known = sigma**2 * model.spread**2 / (sigma**2 + model.spread**2)
        wide, narrow = (variance / known)[..., :4].mean(), (variance / known)[..., 4:].mean()
        # What is narrow takes more steps to be known as well as it can be; at first it is taken to
        # be as wide as all.
        start = sigma**2 * 0.2**2 / (sigma**2 + 0.2**2) / known[..., 4:].mean()
        assert 0.6 < wide < 1.7 and 0.5 < narrow < 0.3 * start
    assert all(p.grad is None and not p.requires_grad for p in [model.spread])


def test_a_flow_gets_one_when_it_is_trained_and_afterwards(tmp_path, capsys):
    plain, after, at_once = (tmp_path / name for name in ("plain", "after", "once"))
    assert small_flow(plain, "--variance-images", 0) == 0
    assert small_flow(after, "--init", plain, "--variance-images", 256, images=0) == 0
    assert small_flow(at_once) == 0
    x = torch.rand(3, 1, 28, 28)
    without, prior = load_prior(plain), load_prior(after)
    assert getattr(without.module, "head", None) is None
    assert isinstance(prior.module.head, VarianceNetwork)
    assert torch.equal(prior.log_prob(x, 0.1), without.log_prob(x, 0.1))
    mean, variance = prior.moments(x, 0.3)
    assert torch.allclose(mean, without.moments(x, 0.3)[0], atol=1e-6)
    assert variance.std() > 0 and without.moments(x, 0.3)[1].std() < 1e-6
    prior.chunk = 2
    assert torch.allclose(prior.moments(x, 0.3)[1], variance, rtol=1e-4)
    card = json.loads((after / "card.json").read_text())
    assert card["training"]["images_seen"] == 0
    assert card["training"]["variance"]["images"] == 256
    once = load_prior(at_once)
    assert once.card.training["variance"]["images"] == 64 and once.module.head is not None
    # Nothing is left to do, and a longer run starts from a prior that has one.
    capsys.readouterr()
    assert small_flow(after, "--init", plain, "--variance-images", 256, images=0) == 0
    assert "finished already" in capsys.readouterr().out
    assert small_flow(tmp_path / "on", "--init", after, images=32) == 0
    assert load_prior(tmp_path / "on").module.head is not None


def test_gibbs_asks_for_the_variance_down_to_the_last_level(monkeypatch):
    """The gradient of such a prior has nothing of what the network knows, and is not followed."""
    prior = LikelihoodPrior(HalfSure(), SHAPE, 0.01, 2.0)
    asked = []
    monkeypatch.setattr(
        prior, "score", lambda x, s, own=prior.score: asked.append(float(s)) or own(x, s)
    )
    mixed = torch.ones(1, *SHAPE)
    separate(mixed, prior, sampler="gibbs", steps=10)
    followed = len(asked)
    prior.model.head = VarianceNetwork(variance_config(SHAPE), 0.5, 0.2).requires_grad_(False)
    levels = []
    monkeypatch.setattr(
        prior, "moments", lambda x, s, own=prior.moments: levels.append(float(s)) or own(x, s)
    )
    separate(mixed, prior, sampler="gibbs", steps=10)
    assert followed > 0 and len(asked) == followed
    assert len(levels) >= 10 and min(levels) < 0.2 * prior.std
    assert Tiled(prior, 12, 12)._switch_level == prior._switch_level == 0


def test_no_images_need_a_prior(tmp_path, capsys):
    assert small_flow(tmp_path / "none", images=0) == 2
    assert "images=0 trains nothing" in capsys.readouterr().err
    with pytest.raises(BasisError, match="init"):
        train(torch.rand(64, 1, 8, 8), out=tmp_path / "a", **vars(TrainConfig(images=0)))


def test_a_single_noise_level_gets_none(tmp_path):
    words = ("--single", 0.1, "--variance-images", 64)
    assert small_flow(tmp_path / "one", *words) == 0
    prior = load_prior(tmp_path / "one")
    assert getattr(prior.module, "head", None) is None


def test_sizes_fit_any_signal():
    for shape in ((1, 28, 28), (3, 32, 32), (2, 6, 10), (1, 7, 7), (1, 12), (1, 4, 4, 4)):
        network = VarianceNetwork(variance_config(shape), 0.5, 0.2)
        network.check_shape(shape)
        variance = network(torch.rand(2, *shape), torch.tensor([0.1, 1.0]))
        # Untrained it knows the spread alone.
        assert variance.shape == (2, *shape)
        assert variance[0].mean().item() == pytest.approx(0.008, rel=1e-4)


def test_cards_of_others_are_checked(tmp_path):
    run = tmp_path / "run"
    assert small_flow(run) == 0
    good = json.loads((run / "card.json").read_text())["architecture"]
    network = good["variance"]["network"]
    wrong = [
        (True, "variance as an object"),
        ({"network": network}, "mean as a number"),
        (good["variance"] | {"std": 0}, "std as a positive number"),
        (good["variance"] | {"network": network | {"width": 3}}, "no size 'width'"),
        (good["variance"] | {"network": network | {"widths": [24, 60000]}}, "more weights"),
        (good["variance"] | {"network": network | {"widths": [24, 24]}}, "does not fit"),
        (good["variance"] | {"network": network | {"fold": 3}}, "does not fit"),
    ]
    for number, (entry, line) in enumerate(wrong):
        folder = tmp_path / str(number)
        shutil.copytree(run, folder)
        update_card(folder, architecture=good | {"variance": entry})
        with pytest.raises(BasisError, match=line) as caught:
            load_prior(folder)
        assert "\n" not in str(caught.value)
