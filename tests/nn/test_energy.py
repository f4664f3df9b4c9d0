"""Energies: densities made of a U-Net, whose gradient denoises."""

import math

import pytest
import torch

from basis.nn.energy import Energy, LevelConstant
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.training.objectives import DualScore, normalize

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


def test_normalizing_finds_the_constant_of_a_gaussian():
    """A U-Net that outputs -u (sqrt(1 + a^2) - a), a = sigma / std, is the energy of a Gaussian:
    what is left to find is -log(sqrt(sigma^2 + std^2)) per dimension, at every noise level.
    """

    class Exact(UNet):
        def features(self, x, label, condition=None):
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


def test_it_is_saved_and_loaded(tmp_path):
    energy = tiny_energy(head=True)
    entry = describe_module(energy)
    assert entry["kind"] == "energy" and entry["variance"]
    assert describe_module(Denoiser(energy.network, 0.13, 0.31))["kind"] == "unet"
    prior = LikelihoodPrior(energy, (1, 8, 8), 0.005, 10.0)
    prior = Prior.from_pretrained(prior.save(tmp_path / "e"))
    assert prior.likelihood_sigma == pytest.approx(prior.std / 3)
    x, s = torch.rand(5, 1, 8, 8), torch.linspace(0.01, 5, 5)
    assert torch.allclose(prior.log_prob(x, s), energy.log_prob(x, s), rtol=1e-5)
    prior.chunk = 2
    mean, variance = prior.moments(x, s)
    whole = energy.moments(x, s)
    assert torch.allclose(mean, whole[0], atol=1e-5) and torch.allclose(variance, whole[1])
