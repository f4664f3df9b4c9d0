"""Priors that can be told classes."""

import numpy as np
import pytest
import torch

import basis
from basis.cli import main
from basis.errors import BasisError
from basis.nn.unet import class_weights
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided
from basis.samplers.gibbs import Gibbs
from basis.search.plan import plan_for
from basis.signals.image_set import ImageSet
from basis.store.loading import load_prior, split_classes
from basis.training.config import TrainConfig
from basis.training.objectives import draw_conditions
from basis.training.run import train

CONFIG = TrainConfig(
    images=24_000, batch_size=48, warmup=480, cooldown=0.7, seed=1, sigma_focus=1.0
)


def shades(count=96):
    """Dark, grey and bright images: 0.1, 0.5 and 0.9 with a little texture."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 3
    level = 0.1 + 0.4 * labels.float()
    values = level[:, None, None, None] + 0.03 * torch.randn(count, 1, 8, 8, generator=g)
    pixels = values.clamp(0, 1).mul(255).round().to(torch.uint8)
    return ImageSet(pixels, labels, "shades", "made here", ("dark", "grey", "bright"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("shades") / "prior"
    train(
        shades(),
        out=out,
        widths=(12, 24),
        blocks=(1, 1),
        embedding=32,
        **vars(CONFIG),
        conditional=True,
        held_out=12,
        variance_images=12_800,
        energy_pairs=0,
        progress=False,
    )
    return out


def level(prior, sigma=2.0):
    noise = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    # Noise about the middle, which says nothing of the level: 0.5 + 2 n / 8 is all that is seen.
    with torch.no_grad():
        return prior.denoise(0.5 + sigma * (noise - noise.mean((1, 2, 3), True)), sigma).mean()


def test_told_classes_are_what_is_drawn_and_denoised(folder):
    prior = load_prior(folder)
    assert prior.classes == ("dark", "grey", "bright")
    assert level(prior.condition("dark")) == pytest.approx(0.1, abs=0.06)
    assert level(prior.condition("bright")) == pytest.approx(0.9, abs=0.06)
    assert level(prior) == pytest.approx(0.5, abs=0.08)
    # Of two classes either may be it, and without a hint the mean of both is the best answer.
    assert level(prior.condition("grey", "bright")) == pytest.approx(0.7, abs=0.08)
    assert level(prior.condition(1, 2)) == level(prior.condition("bright", "grey"))
    assert prior.condition(*prior.classes) is prior


def test_the_variance_knows_what_was_told(folder):
    prior = load_prior(folder)
    x = 0.5 + 2 * torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        told, untold = (p.moments(x, 2.0)[1].mean() for p in (prior.condition("dark"), prior))
    assert told < untold / 2


def test_sources_with_classes_of_their_own_come_apart(folder):
    dark, bright = load_prior(f"{folder}:dark"), load_prior(f"{folder}:bright")
    images = shades().floats()
    mixture = (images[:1] + images[2:3]) / 2
    found = basis.separate(mixture, [dark, bright], alphas=(0.5, 0.5), effort=60, seed=0).sources
    assert found[0, 0].mean() == pytest.approx(0.1, abs=0.05)
    assert found[0, 1].mean() == pytest.approx(0.9, abs=0.05)


def test_chains_in_different_orders_are_not_averaged_as_they_are():
    """Sources whose priors hardly tell them apart come out in one order or the other."""
    means = torch.zeros(2, 1, 4, 4)
    means[0, :, :, :2], means[1, :, :2] = 1, 1
    variance = torch.full((2,), 0.01)
    priors = [GaussianMixture(means, variance, torch.tensor(w)) for w in ([0.6, 0.4], [0.4, 0.6])]
    mixture = means.sum(dim=0).repeat(8, 1, 1, 1)

    def farthest(order):
        rounds = (basis.Round(8, Gibbs(steps=30)),)
        plan = basis.Plan(rounds, ranking=basis.Ranking("mean"), order=order)
        found = basis.separate(mixture, priors, effort=plan, seed=0).sources
        far = [(found - truth).abs().flatten(1).amax(dim=1) for truth in (means, means.flip(0))]
        return torch.minimum(*far).max()

    assert farthest(order=False) > 0.3
    assert farthest(order=True) < 0.2
    assert plan_for("balanced", 2, ordered=True, choose="mean").order


def test_samples_of_each_class_in_turn(folder):
    prior = load_prior(folder)
    drawn = basis.sample(prior, 6, steps=12, each_class=True, seed=0).mean((1, 2, 3))
    assert drawn.view(2, 3).sub(torch.tensor([0.1, 0.5, 0.9])).abs().max() < 0.1
    # A signal depends on the seed and its number alone.
    fewer = basis.sample(prior, 2, steps=12, each_class=True, seed=0).mean((1, 2, 3))
    assert torch.allclose(fewer, drawn[:2], atol=1e-5)
    guided = Autoguided(prior, prior, 0.5)
    assert guided.classes == prior.classes
    assert level(guided.condition("dark")) < level(prior.condition("dark")) + 1e-3


def test_a_network_begins_as_one_that_is_told_nothing():
    torch.manual_seed(0)
    sizes = {"widths": (12, 24), "blocks": (1, 1), "embedding": 16}
    denoiser = Denoiser(UNet(UNetConfig(**sizes, classes=4)), 0.5, 0.3)
    x, sigma = torch.rand(4, 1, 8, 8), torch.full((4,), 0.5)
    told = class_weights(torch.eye(4).bool())
    assert torch.equal(denoiser(x, sigma, told), denoiser(x, sigma))
    assert torch.equal(class_weights(torch.ones(2, 4).bool()), torch.zeros(2, 4))


def test_what_is_told_in_training_never_contradicts_the_label():
    labels = torch.arange(5).repeat(400)
    told = draw_conditions(labels, 5, torch.Generator().manual_seed(0))
    own = told[torch.arange(len(labels)), labels]
    nothing = (told == 0).all(dim=1)
    assert (own[~nothing] > 0).all()
    assert 0.24 < nothing.float().mean() < 0.30  # a quarter, and sets that happen to be all
    alone = own == 1 - 1 / 5
    assert 0.47 < alone.float().mean() < 0.56
    # A set says the same of each of its classes: given any set, all members are as frequent.
    rest = ~(nothing | alone)
    pairs = told[rest][(told[rest] > 0).sum(dim=1) == 2]
    kinds = labels[rest][(told[rest] > 0).sum(dim=1) == 2]
    first = pairs.argmax(dim=1) == kinds
    assert 0.35 < first.float().mean() < 0.65


def test_a_conditional_run_stopped_and_resumed_is_the_run_never_stopped(tmp_path):
    settings = {
        "widths": (12, 24),
        "blocks": (1, 1),
        "embedding": 16,
        "conditional": True,
        "held_out": 12,
        "variance_images": 0,
        "energy_pairs": 0,
        "progress": False,
    }
    short = TrainConfig(images=64, batch_size=16, warmup=16, cooldown=1e-9, seed=3)
    whole = TrainConfig(images=128, batch_size=16, warmup=16, cooldown=1e-9, seed=3)
    train(shades(), out=tmp_path / "whole", **vars(whole), **settings)
    train(shades(), out=tmp_path / "parts", **vars(short), **settings)
    train(shades(), out=tmp_path / "parts", **vars(whole), **settings)
    a, b = (load_prior(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_labels_without_names_are_called_by_their_numbers(tmp_path):
    images = shades()
    np.savez(tmp_path / "x.npz", images=images.images.numpy(), labels=images.labels.numpy())
    words = ["--widths", "12", "24", "--blocks", "1", "1", "--images", "32", "--batch-size", "16"]
    words += ["--variance-images", "0", "--energy-pairs", "0", "--out", str(tmp_path / "run")]
    assert main(["train", "--data", str(tmp_path / "x.npz"), "--conditional", *words]) == 0
    assert load_prior(f"{tmp_path / 'run'}:0,2").name == "run:0,2"


def test_a_run_may_start_from_a_prior_that_is_told_nothing(folder, tmp_path):
    settings = {"held_out": 12, "variance_images": 0, "energy_pairs": 0, "progress": False}
    sizes = {"widths": (12, 24), "blocks": (1, 1), "embedding": 32}
    config = TrainConfig(images=32, batch_size=16, lr=1e-9, adam_lr=1e-9)
    plain = train(shades(), out=tmp_path / "a", **sizes, **vars(config), init=folder, **settings)
    assert plain.classes == ()
    told = load_prior(folder)
    assert level(plain) == pytest.approx(level(told).item(), abs=1e-3)
    # Of the sizes of what it starts from, where none are given.
    settings["conditional"] = True
    again = train(shades(), out=tmp_path / "b", **vars(config), init=plain, **settings)
    assert again.module.network.config.widths == sizes["widths"]
    assert again.classes == told.classes
    assert level(again.condition("dark")) == pytest.approx(level(plain).item(), abs=1e-3)


def test_mistakes_are_told(folder, tmp_path, capsys):
    with pytest.raises(BasisError, match="no class 'pink'; its classes are dark, grey, bright"):
        load_prior(f"{folder}:pink")
    with pytest.raises(BasisError, match="no class 3"):
        load_prior(folder).condition(3)
    with pytest.raises(BasisError, match="no class of prior"):
        load_prior(folder).condition()
    plain = DenoiserPrior(torch.nn.Identity(), (1, 8, 8), 0.01, 1.0)
    with pytest.raises(BasisError, match="was not trained to be told classes"):
        plain.condition(0)
    with pytest.raises(BasisError, match="was not trained to be told classes"):
        basis.sample(plain, 2, each_class=True)
    with pytest.raises(BasisError, match="no labels of two or more classes"):
        train(torch.rand(40, 1, 8, 8), out=tmp_path / "x", conditional=True, value_range=(0, 1))
    with pytest.raises(BasisError, match="only a unet can be conditional, not glow"):
        train(shades(), out=tmp_path / "x", kind="glow", conditional=True)
    assert main(["sample", f"{folder}:pink", "--out", str(tmp_path / "out")]) == 2
    assert "its classes are dark, grey, bright" in capsys.readouterr().err


def test_a_colon_parts_a_prior_from_its_classes(tmp_path):
    assert split_classes("mnist") == ("mnist", [])
    assert split_classes("mnist:0,1") == ("mnist", ["0", "1"])
    assert split_classes("hf:owner/name@v1") == ("hf:owner/name@v1", [])
    assert split_classes("hf:owner/name@v1:cat") == ("hf:owner/name@v1", ["cat"])
    assert split_classes("C:/priors/mnist") == ("C:/priors/mnist", [])
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_classes(str(odd)) == (str(odd), [])
