"""Energies: densities made of a U-Net, whose gradient denoises."""

import json
import math

import pytest
import torch

from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.nn.energy import Energy, LevelConstant
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.store.folder import save_prior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.objectives import DualScore, normalize
from basis.training.run import train

TINY = UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16)


def tiny_energy(config=TINY, head=False):
    torch.manual_seed(0)
    made = VarianceHead(config) if head else None
    energy = Energy(UNet(config), 0.13, 0.31, made)
    with torch.no_grad():
        for p in energy.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    return energy


def test_it_is_the_squared_distance_from_the_denoised_signal():
    energy = tiny_energy().double()
    denoiser = Denoiser(energy.network, energy.mean, energy.std)
    x, s = torch.rand(3, 1, 8, 8, dtype=torch.float64), torch.tensor([0.02, 0.3, 5.0]).double()
    apart = (x - denoiser(x, s)).flatten(1).square().sum(dim=1)
    level = 64 * energy.constant(s)
    assert torch.allclose(energy.log_prob(x, s), -apart / (2 * s.square()) + level)


@pytest.mark.parametrize("dims", [1, 2])
def test_gradients_are_those_of_the_density(dims):
    """In x and in the noise level, by differences; and their own gradients, which train it."""
    energy = tiny_energy(
        UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16, dims=dims)
    ).double()
    x = torch.rand(2, 1, *[8] * dims, dtype=torch.float64)
    s = torch.tensor([0.1, 0.7], dtype=torch.float64)
    by_x, by_level = energy.slopes(x, s.log())
    way = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    h = 1e-5
    ahead, behind = energy.log_prob(x + h * way, s), energy.log_prob(x - h * way, s)
    assert torch.allclose((by_x * way).flatten(1).sum(dim=1), (ahead - behind) / (2 * h))
    ahead, behind = energy.log_prob(x, s * math.exp(h)), energy.log_prob(x, s * math.exp(-h))
    assert torch.allclose(by_level, (ahead - behind) / (2 * h))
    with torch.inference_mode():
        expected = x + s.view(-1, *[1] * (dims + 1)).square() * by_x
        assert torch.allclose(energy(x, s), expected)
    weight = next(p for p in energy.parameters() if p.ndim > 2)
    loss = DualScore().loss(energy, x, x + 0.1 * way, s)
    (slope,) = torch.autograd.grad(loss, weight)
    values = []
    for sign in (1, -2):
        with torch.no_grad():
            weight.view(-1)[0] += sign * h
        values.append(DualScore().loss(energy, x, x + 0.1 * way, s).item())
    assert slope.flatten()[0].item() == pytest.approx((values[0] - values[1]) / (2 * h), rel=1e-4)


def test_the_constant_is_the_integral_of_its_slopes():
    constant = LevelConstant(0.31).double()
    with torch.no_grad():
        constant.slopes.copy_(torch.rand(33, generator=torch.Generator().manual_seed(0)))
        constant.top.fill_(0.25)
    last = constant.knots[-1].double().exp()[None]
    assert constant(last).item() == pytest.approx(
        0.25 - last.log().item() - 0.5 * math.log(2 * math.pi)
    )
    # Below the first knot, between knots, at one, and above the last.
    for sigma in (0.001, 0.05, constant.knots[7].exp().item(), 100.0):
        level = torch.tensor([math.log(sigma)], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(constant(level.exp()).sum(), level)
        place = (level.item() - constant.knots[0]) / (constant.knots[1] - constant.knots[0])
        place = min(max(float(place), 0.0), 32.0)
        low = min(int(place), 31)
        share = place - low
        own = (1 - share) * constant.slopes[low] + share * constant.slopes[low + 1]
        assert slope.item() == pytest.approx(own.item() - 1, abs=1e-4)


def test_normalising_finds_the_constant_of_a_gaussian():
    """A U-Net that outputs -u (sqrt(1 + a^2) - a), a = sigma / std, is the energy of a Gaussian:
    what is left to find is -log(sqrt(sigma^2 + std^2)) per dimension, at every noise level.
    """

    class Exact(UNet):
        def features(self, x, label, told=None):
            a = ((4 * label).exp() / 0.5).view(-1, *[1] * (x.ndim - 1))
            return -x * ((1 + a.square()).sqrt() - a)

        def read(self, features):
            return features

    energy = Energy(Exact(UNetConfig(widths=(8,), blocks=(1,), fold=1, dims=1)), 0.2, 0.5)
    g = torch.Generator().manual_seed(0)
    data = 0.2 + 0.5 * torch.randn(4096, 1, 16, generator=g)
    normalize(energy, data, 0.01, 20.0, count=256)
    exact = GaussianMixture(torch.full((1, 1, 16), 0.2), torch.tensor([0.25]))
    for sigma in (0.02, 0.1, 0.5, 3.0, 15.0):
        x = data[:64] + sigma * torch.randn(64, 1, 16, generator=g)
        found, known = energy.log_prob(x, torch.full((64,), sigma)), exact.log_prob(x, sigma)
        assert (found - known).std() < 1e-3
        assert (found - known).mean().abs() < 0.3  # of 16 dimensions


@pytest.fixture(scope="module")
def two_modes(tmp_path_factory):
    """A mixture of two Gaussians, three quarters of it in one, and an energy trained on draws."""
    means = torch.tensor([[[-1.0, -1.0]], [[1.0, 1.0]]])
    weights = torch.tensor([0.75, 0.25])
    exact = GaussianMixture(means, torch.tensor([0.04, 0.09]), weights)
    data = exact.exact_samples(8192, torch.Generator().manual_seed(0))
    config = TrainConfig(
        images=128 * 400, batch_size=128, warmup=2560, cooldown=0.7, lr=0.03, adam_lr=0.01
    )
    prior = train(
        data,
        out=tmp_path_factory.mktemp("energy"),
        kind="energy",
        widths=(32,),
        blocks=(1,),
        fold=1,
        attention=0,
        embedding=32,
        **vars(config),
        variance_images=12800,
        energy_pairs=0,
        progress=False,
    )
    return exact, prior


def test_a_trained_energy_has_the_density_of_its_data(two_modes):
    exact, prior = two_modes
    g = torch.Generator().manual_seed(1)
    x = exact.exact_samples(1000, g)
    for sigma, most in ((0.1, 0.5), (0.3, 0.3), (1.0, 0.2), (3.0, 0.1)):
        noisy = x + sigma * torch.randn(x.shape, generator=g)
        apart = prior.log_prob(noisy, sigma) - exact.log_prob(noisy, sigma)
        assert apart.abs().mean() < most
        wrong = (prior.denoise(noisy, sigma) - exact.denoise(noisy, sigma)).square().mean()
        assert wrong < 0.05 * sigma**2
    # The modes' weights are in it, which a score at this noise level alone could not tell: without
    # them the smaller mode's density would be off by log 3.
    middles = exact.means.view(2, 1, 2)
    apart = prior.log_prob(middles, 0.3) - exact.log_prob(middles, 0.3)
    assert apart.abs().max() < 0.4


def test_it_ranks_samples_by_its_density(two_modes):
    exact, prior = two_modes
    g = torch.Generator().manual_seed(2)
    good = exact.exact_samples(200, g)
    bad = 1.5 * torch.randn(200, 1, 2, generator=g)
    x = torch.cat([good, bad])
    known, found = exact.log_prob(x, 0.2), prior.log_prob(x, 0.2)
    ranks = torch.stack([t.argsort().argsort().float() for t in (known, found)])
    assert torch.corrcoef(ranks)[0, 1] > 0.95
    r = separate(good[:2].sum(dim=0)[None], prior, sampler="gibbs", steps=10, samples=4,
                 choose="likelihood")  # fmt: skip
    assert prior.likelihood_sigma == pytest.approx(prior.std / 3)
    summed = (
        prior.log_prob(r.samples[0].flatten(0, 1), prior.likelihood_sigma).view(4, 2).sum(dim=1)
    )
    assert summed.argmax() == r.energies[0].argmin()


def test_its_variance_is_learned_and_given(two_modes):
    exact, prior = two_modes
    assert isinstance(prior, LikelihoodPrior) and prior.module.head is not None
    x = exact.exact_samples(500, torch.Generator().manual_seed(3))
    noisy = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(4))
    mean, variance = prior.moments(noisy, 0.3)
    assert torch.allclose(mean, prior.denoise(noisy, 0.3), atol=1e-5)
    known = exact.moments(noisy, 0.3)[1]
    # A hundred steps do not bring it there, but well on the way from where it starts.
    start = prior.module.output_scale(torch.tensor(0.3)).square()
    assert 0.5 * known.mean() < variance.mean()
    assert variance.mean() - known.mean() < 0.7 * (start - known.mean())
    assert prior.card.architecture["variance"] and prior.card.training["variance"]["images"] > 0


def test_it_starts_from_a_score_prior_and_goes_on(tmp_path, capsys):
    score = tmp_path / "score"
    sizes = ["--widths", 8, 16, "--blocks", 1, 1, "--embedding", 16]
    words = [
        "train",
        "--data",
        "sample",
        "--batch-size",
        16,
        "--held-out",
        16,
        *sizes,
        "--energy-pairs",
        0,
    ]
    assert main([str(w) for w in [*words, "--out", score, "--images", 64]]) == 0
    run = tmp_path / "energy"
    words += ["--kind", "energy", "--init", score, "--out", run]
    assert main([str(w) for w in [*words, "--images", 32]]) == 0
    first = json.loads((run / "card.json").read_text())
    assert first["architecture"]["kind"] == "energy" and first["architecture"]["variance"]
    assert first["title"].startswith("energy prior")
    assert main([str(w) for w in [*words, "--images", 64]]) == 0
    assert "going on from step 2" in capsys.readouterr().out
    prior = load_prior(run)
    assert isinstance(prior.module, Energy) and prior.card.training["steps"] == 4
    assert all(math.isfinite(e) for e in prior.errors.values())
    x = torch.rand(2, 1, 28, 28)
    mean, variance = prior.moments(x, 0.2)
    assert torch.allclose(mean, prior.denoise(x, 0.2), atol=1e-5) and (variance > 0).all()


def test_it_saves_loads_and_is_no_unet(tmp_path):
    energy = tiny_energy(head=True)
    entry = describe_module(energy)
    assert entry["kind"] == "energy" and entry["variance"]
    assert describe_module(Denoiser(energy.network, 0.13, 0.31))["kind"] == "unet"
    card = {"name": "e", "architecture": entry, "shape": [1, 8, 8]}
    card |= {"sigma_min": 0.005, "sigma_max": 10.0}
    save_prior(tmp_path / "e", dict(energy.named_parameters()), card, dtype=torch.float32)
    prior = load_prior(tmp_path / "e")
    x, s = torch.rand(5, 1, 8, 8), torch.linspace(0.01, 5, 5)
    assert torch.allclose(prior.log_prob(x, s), energy.log_prob(x, s), rtol=1e-5)
    prior.chunk = 2
    mean, variance = prior.moments(x, s)
    whole = energy.moments(x, s)
    assert torch.allclose(mean, whole[0], atol=1e-5) and torch.allclose(variance, whole[1])
    with pytest.raises(BasisError, match="another architecture"):
        train(x.repeat(8, 1, 1, 1), out=tmp_path / "f", kind="energy", init=load_prior("mnist-vae"),
              held_out=8)  # fmt: skip
