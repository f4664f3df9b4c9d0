"""Glow: exact likelihoods, exact inverses, no explosions."""

import math

import pytest
import torch

from basis.nn import Glow, GlowConfig, bits_per_dimension


def small(**changes):
    torch.manual_seed(0)
    settings = {"size": 8, "levels": 2, "depth": 2, "width": 8, "mean": 0.2, "std": 0.3} | changes
    glow = Glow(GlowConfig(**settings)).double()
    with torch.no_grad():
        for p in glow.parameters():
            if p.requires_grad:
                p.add_(0.05 * torch.randn(p.shape, dtype=p.dtype))
    return glow


KINDS = [
    {},
    {"coupling": "additive"},
    {"scale": "sigmoid", "lu": False, "mean": 0.5, "std": 1.0},
    {"conditioned": True},
    {"channels": 3, "size": 4, "levels": 1, "learned_top": False},
]


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_is_the_density_of_the_map(kind):
    """log p equals the standard normal density of the latents plus the log-determinant of the whole map."""
    glow = small(**kind)
    c = glow.config
    x = torch.rand(1, c.channels, c.size, c.size, dtype=torch.float64)
    sigma = torch.full((1,), 0.2, dtype=torch.float64)

    def whiten(flat):
        zs = glow.encode(flat.view_as(x), sigma)
        return torch.cat([z.flatten() for z in zs])

    jacobian = torch.autograd.functional.jacobian(whiten, x.flatten())
    z = whiten(x.flatten())
    normal = -0.5 * (z.square().sum() + z.numel() * math.log(2 * math.pi))
    exact = normal + torch.linalg.slogdet(jacobian).logabsdet
    assert torch.allclose(glow.log_prob(x, sigma), exact, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.1, 1.0])
def test_inverse_on_data_and_on_noise(kind, sigma):
    glow = small(**kind).float()
    c = glow.config
    g = torch.Generator().manual_seed(1)
    for x in (
        torch.rand(4, c.channels, c.size, c.size, generator=g),
        torch.randn(4, c.channels, c.size, c.size, generator=g) * (1 + sigma),
    ):
        s = torch.full((4,), sigma)
        back = glow.decode(glow.encode(x, s), s)
        assert (back - x).abs().max() < 1e-4


def test_gradient_agrees_with_finite_differences():
    glow = small(conditioned=True)
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor([0.05, 0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda y: glow.log_prob(y, sigma), (x,), atol=1e-6)


def test_data_dependent_start():
    glow = Glow(GlowConfig(size=8, depth=2, width=16, mean=0.3, std=0.3))
    x = torch.rand(64, 1, 8, 8) ** 2
    sigma = torch.zeros(64)
    assert not glow.started
    before = glow.log_prob(x, sigma).mean()
    glow.start(x, sigma)
    assert glow.started and glow.log_prob(x, sigma).mean() > before
    for z in glow.encode(x, sigma):
        assert z.mean().abs() < 0.3 and 0.5 < z.std() < 2


def test_samples_follow_the_density():
    """The mean log-density of its own samples is minus the entropy, which an affine flow has in closed form."""
    glow = small(coupling="additive", learned_top=False)
    sigma = torch.zeros(4000, dtype=torch.float64)
    x = glow.sample(sigma, generator=torch.Generator().manual_seed(0))
    z = torch.cat([z.flatten(1) for z in glow.encode(x, sigma)], dim=1)
    assert z.mean().abs() < 0.02 and (z.std() - 1).abs() < 0.02


def test_conditioning_changes_the_density():
    glow = small(conditioned=True)
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64).expand(2, -1, -1, -1)
    low, high = glow.log_prob(x, torch.tensor([0.01, 1.0], dtype=torch.float64))
    assert low != high


def test_bits_per_dimension():
    """A uniform density over the 256 steps takes exactly 8 bits per pixel."""
    log_prob = torch.tensor([-784 * math.log(256 / 255)])
    assert bits_per_dimension(log_prob, 784).item() == pytest.approx(8.0)


def test_published_sizes():
    """The published CIFAR-10 model, 3 levels of 32 steps, width 512, counted layer by layer."""
    w = 512

    def step(c):
        first, last = 9 * (c // 2 + 1) * w, 9 * (w + 1) * c + 2 * c
        return 2 * c + c * c + first + 2 * w + w * w + 2 * w + last

    def zeros(c):
        return 9 * (c + 1) * 2 * c + 4 * c

    top = 9 * (2 * 48 + 1) * 2 * 48 + 4 * 48
    exact = 32 * (step(12) + step(24) + step(48)) + zeros(6) + zeros(12) + top
    config = GlowConfig(channels=3, size=32, levels=3, depth=32, width=w, lu=False, scale="sigmoid")
    with torch.device("meta"):
        glow = Glow(config)
    assert sum(p.numel() for p in glow.parameters() if p.requires_grad) == exact


def test_sides_must_halve():
    with pytest.raises(ValueError, match="divisible by 8"):
        Glow(GlowConfig(size=28, levels=3))
