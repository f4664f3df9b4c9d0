"""Glow: exact likelihoods, exact inverses, no explosions."""

import math

import pytest
import torch

from basis.nn.glow import Glow, GlowConfig, bits_per_dimension


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
    {"conditioned": True, "coupling": "additive", "learned_top": False},
    {"channels": 3, "size": 4, "levels": 1, "learned_top": False},
    {"conditioned": True, "wide": 2, "wide_width": 8},
    {"wide": 2, "wide_width": 8, "lu": False, "coupling": "additive", "size": 6, "levels": 1},
]


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_is_the_density_of_the_map(kind):
    """log p equals the standard normal density of the latents plus the log-determinant of the whole
    map.
    """
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


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
def test_normflows_agrees():
    """The same weights in another library's Glow blocks give the same log p, and the same
    gradient.
    """
    import normflows

    torch.manual_seed(2)
    channels, width, depth = 4, 8, 3
    theirs = [normflows.flows.GlowBlock(channels, width, init_zeros=False) for _ in range(depth)]
    config = GlowConfig(
        size=8, levels=1, depth=depth, width=width, scale="sigmoid", learned_top=False, std=1.0
    )
    ours = Glow(config).double()
    with torch.no_grad():
        for block, step in zip(theirs, ours.flows[0], strict=True):
            block.double()
            coupling, mix, norm = block.flows
            norm.data_dep_init_done.fill_(1.0)
            norm.s.normal_(std=0.3)
            norm.t.normal_(std=0.3)
            step.norm.bias.copy_(-norm.t.flatten())
            step.norm.logs.copy_(-norm.s.flatten() / 3)
            for name, value in (
                ("permutation", mix.P), ("sign", mix.sign_S), ("log_s", mix.log_S),
                ("lower", mix.L), ("upper", mix.U),
            ):  # fmt: skip
                getattr(step.mix, name).copy_(value)
            first, _, second, _, last = coupling.flows[1].param_map.net
            inner = step.coupling
            for conv, edge, act in (
                (first, inner.conv0, inner.norm0),
                (second, inner.conv1, inner.norm1),
            ):
                edge.weight.zero_()
                edge.weight[:, : conv.weight.shape[1]] = conv.weight
                act.bias.copy_(conv.bias)
            # Theirs takes the shift away where ours, as published, adds it.
            sign = torch.tensor([-1.0, 1.0]).repeat(channels // 2).double()
            inner.out.conv.weight.zero_()
            inner.out.conv.weight[:, :width] = last.weight * sign[:, None, None, None]
            inner.out.bias.copy_(last.bias * sign)
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    z = torch.nn.functional.pixel_unshuffle(x - 0.5, 2)
    total = torch.zeros(3, dtype=torch.float64)
    for block in theirs:
        z, log_det = block.inverse(z)
        total = total + log_det
    total = total - 0.5 * (z.square() + math.log(2 * math.pi)).flatten(1).sum(dim=1)
    found = ours.log_prob(x, torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(found, total, atol=1e-8)
    (a,) = torch.autograd.grad(found.sum(), x)
    (b,) = torch.autograd.grad(total.sum(), x)
    assert torch.allclose(a, b, atol=1e-7)


def test_wide_steps_see_the_whole_picture_and_begin_as_nothing():
    plain = small(conditioned=True)
    torch.manual_seed(1)
    wide = Glow(GlowConfig(**{**vars(plain.config), "wide": 2, "wide_width": 8})).double()
    own = {n: t for n, t in wide.state_dict().items() if n.startswith("wide.")}
    wide.load_state_dict(own | plain.state_dict())
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor([0.1, 0.7], dtype=torch.float64)
    assert torch.allclose(wide.log_prob(x, sigma), plain.log_prob(x, sigma))
    with torch.no_grad():
        for p in wide.wide.parameters():
            p.add_(0.1 * torch.randn(p.shape, dtype=p.dtype))
    changed = wide.wide[0](torch.nn.functional.pixel_unshuffle(x, 2), wide.embed(sigma))[0]
    (seen,) = torch.autograd.grad(changed[0, -1, 0, 0], x)  # a corner, by one step
    assert (seen[0, 0, -2:, -2:] != 0).any() and seen[1].abs().max() == 0
    with pytest.raises(ValueError, match="wide must be even"):
        Glow(GlowConfig(wide=3))
