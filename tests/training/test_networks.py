"""What is trained besides a plain network: conditions, larger networks, experts, variances."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from basis.errors import BasisError
from basis.nn.energy import Energy
from basis.nn.experts import Experts
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.signals.image_set import ImageSet
from basis.store.loading import load_prior
from basis.training.objectives import draw_conditions
from basis.training.run import train
from basis.training.variance import fit_variance

STILL = {"images": 8, "batch_size": 8, "lr": 1e-9, "adam_lr": 1e-9, "held_out": 8,
         "variance_images": 0, "energy_pairs": 0, "progress": False}  # fmt: skip
"""A run that changes nothing."""


def disturbed(network, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    return network


@pytest.fixture
def shades(blobs):
    """Pictures with three classes."""
    return ImageSet(blobs(), torch.arange(64) % 3, "shades", "made here", ("a", "b", "c"))


# ------------------------------------------------------------------------ conditions


def test_conditions_in_training_hold_for_the_label():
    labels = torch.arange(5).repeat(400)
    drawn = draw_conditions(labels, 5, torch.Generator().manual_seed(0))
    own = drawn[torch.arange(len(labels)), labels]
    nothing = (drawn == 0).all(dim=1)
    assert (own[~nothing] > 0).all()
    assert 0.24 < nothing.float().mean() < 0.30  # a quarter, and sets that happen to be all
    alone = own == 1 - 1 / 5
    assert 0.47 < alone.float().mean() < 0.56
    # Every member of a set is equally likely to be the own class.
    rest = ~(nothing | alone)
    two = (drawn[rest] > 0).sum(dim=1) == 2
    first = drawn[rest][two].argmax(dim=1) == labels[rest][two]
    assert 0.35 < first.float().mean() < 0.65


def test_conditional_runs_continue_and_start_from_others(tmp_path, shades, tiny):
    settings = tiny | {"cooldown": 1e-9, "conditional": True}
    whole = train(shades, out=tmp_path / "whole", **settings | {"images": 96})
    train(shades, out=tmp_path / "parts", **settings)
    parts = train(shades, out=tmp_path / "parts", **settings | {"images": 96})
    a, b = whole.state_dict(), parts.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole.classes == ("a", "b", "c")
    assert load_prior(f"{tmp_path / 'whole'}:a,c").name == "whole:a,c"
    assert "held_out_error_over_sigma2_with_class" in whole.card.training
    x = torch.rand(2, 1, 8, 8)
    assert not torch.equal(whole.condition("a").denoise(x, 0.5), whole.denoise(x, 0.5))
    plain = train(shades, out=tmp_path / "plain", init=tmp_path / "whole", **STILL)
    assert plain.classes == ()
    again = train(shades, out=tmp_path / "again", init=plain, conditional=True, **STILL)
    assert again.classes == whole.classes
    for prior in (plain, again, again.condition("a")):
        assert torch.allclose(prior.denoise(x, 0.5), whole.denoise(x, 0.5), atol=1e-3)
    with pytest.raises(BasisError, match="not glow"):
        train(shades, out=tmp_path / "x", kind="glow", conditional=True)


# ------------------------------------------------------------------------ other networks to start


def test_training_starts_from_a_smaller_network(tmp_path):
    images = torch.rand(40, 2, 16, 16)
    config = UNetConfig(channels=2, widths=(12, 12), blocks=(1, 1), head_width=12, embedding=16)
    moments = images.mean().item(), images.std().item()
    denoiser = Denoiser(disturbed(UNet(config)), *moments)
    prior = DenoiserPrior(denoiser, (2, 16, 16), 0.005, 10.0, name="small", value_range=None)
    sizes = {"widths": (24, 24), "blocks": (1, 2), "head_width": 12, "embedding": 16}
    grown = train(images, out=tmp_path / "run", init=prior, **sizes, **STILL)
    assert grown.module.network.config.widths == (24, 24)
    x = torch.rand(2, 2, 16, 16)
    torch.testing.assert_close(grown.denoise(x, 0.3), prior.denoise(x, 0.3), rtol=1e-2, atol=1e-2)
    with pytest.raises(BasisError, match=r"'small' does not fit .* multiples of 12"):
        train(images, out=tmp_path / "x", init=prior, **sizes | {"widths": (16, 24)}, **STILL)
    with pytest.raises(BasisError, match="another architecture"):
        train(images, out=tmp_path / "x", init=prior, kind="glow", **STILL)


@pytest.mark.parametrize(("sigma_min", "second"), [(None, False), (0.1, False), (0.15, True)])
def test_training_continues_the_expert_of_its_noise(tmp_path, blobs, sigma_min, second):
    config = UNetConfig(widths=(12,), blocks=(1,), attention=0, embedding=16)
    below, above = (Denoiser(disturbed(UNet(config), s), 0.25, 0.43) for s in (0, 1))
    both = DenoiserPrior(Experts(below, above, 0.3), (1, 8, 8), 0.005, 10.0)
    settings = STILL | {"images": 0}
    run = train(blobs(), out=tmp_path, init=both, sigma_min=sigma_min, **settings)
    ours = (above if second else below).network.state_dict()
    for name, weight in run.module.network.state_dict().items():
        assert torch.allclose(weight, ours[name], atol=2e-3), name


def test_a_trained_energy_has_the_density_of_its_data(tmp_path):
    means = torch.tensor([[[-1.0, -1.0]], [[1.0, 1.0]]])
    exact = GaussianMixture(means, torch.tensor([0.04, 0.09]), torch.tensor([0.75, 0.25]))
    data = exact.exact_samples(8192, torch.Generator().manual_seed(0))
    prior = train(
        data, out=tmp_path, kind="energy", widths=(32,), blocks=(1,), fold=1, attention=0,
        embedding=32, images=128 * 400, warmup=2560, cooldown=0.7, adam_lr=0.01,
        variance_images=12800, energy_pairs=0, progress=False,
    )  # fmt: skip
    g = torch.Generator().manual_seed(1)
    x = exact.exact_samples(1000, g)
    for sigma, largest in ((0.1, 0.5), (0.3, 0.3), (1.0, 0.2), (3.0, 0.1)):
        noisy = x + sigma * torch.randn(x.shape, generator=g)
        difference = prior.log_prob(noisy, sigma) - exact.log_prob(noisy, sigma)
        assert difference.abs().mean() < largest


# ------------------------------------------------------------------------ variances


class Independent(nn.Module):
    """Independent values of mean 0.5, with a large std on the left and a small one on the right."""

    config = SimpleNamespace(mean=0.5, std=0.2)

    def __init__(self):
        super().__init__()
        std = torch.full((1, 8, 8), 0.02)
        std[..., :4] = 0.3
        self.std = nn.Parameter(std, requires_grad=False)

    def log_prob(self, x, sigma):
        variance = self.std.square() + sigma.view(-1, 1, 1, 1).square()
        return -0.5 * ((x - 0.5).square() / variance + variance.log()).flatten(1).sum(dim=1)


def test_the_variance_of_a_known_density_is_learned():
    g = torch.Generator().manual_seed(0)
    model = Independent()
    data = 0.5 + model.std * torch.randn(512, 1, 8, 8, generator=g)
    losses = fit_variance(
        model, data, count=64 * 120, sigma_min=0.05, sigma_max=1.0, batch_size=64, progress=False
    )
    assert len(losses) == 120 and sum(losses[-20:]) < sum(losses[:20])
    prior = LikelihoodPrior(model, (1, 8, 8), 0.05, 1.0)
    for sigma in (0.1, 0.3):
        x = data[:64] + sigma * torch.randn(64, 1, 8, 8, generator=g)
        mean, variance = prior.moments(x, sigma)
        assert torch.allclose(mean, prior.denoise(x, sigma), atol=1e-6)
        known = sigma**2 * model.std**2 / (sigma**2 + model.std**2)
        wide, narrow = (variance / known)[..., :4].mean(), (variance / known)[..., 4:].mean()
        # The small one needs more steps: at first both are those of the Gaussian of all values.
        first = sigma**2 * 0.2**2 / (sigma**2 + 0.2**2) / known[..., 4:].mean()
        assert 0.6 < wide < 1.7 and 0.5 < narrow < 0.3 * first
    assert model.std.grad is None and not model.std.requires_grad


def test_the_head_of_an_energy_sees_a_batch_four_times():
    torch.manual_seed(0)
    energy = Energy(UNet(UNetConfig(widths=(8,), blocks=(1,), attention=0, embedding=16)), 0.5, 0.3)
    asked = []
    energy.features_and_mean = lambda *a, f=energy.features_and_mean: (asked.append(1), f(*a))[1]
    images = torch.rand(16, 1, 8, 8)
    losses = fit_variance(energy, images, count=16 * 8, batch_size=16, progress=False)
    assert len(losses) == 8 and len(asked) == 2 and all(map(math.isfinite, losses))
