"""NCSN: that it is the published network, and that its denoiser is what the paper trains."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser, _ConditionalNorm

TINY = NCSNConfig(size=8, width=4, levels=3, sigma_min=0.1)


def tiny(config: NCSNConfig = TINY, variation: float = 0.3) -> NCSN:
    """A float64 network whose noise levels differ more than they do at the start of training."""
    torch.manual_seed(0)
    network = NCSN(config).double()
    for name, p in network.named_parameters():
        if "embed" in name:
            torch.nn.init.normal_(p, 0.5, variation)
    return network


@pytest.mark.parametrize(
    # The counts were added up by hand from the published source, not by this code.
    ("config", "count"),
    [
        (NCSNConfig(), 7_638_657),
        (NCSNConfig(channels=3, size=32, width=128), 30_117_635),
    ],
    ids=["mnist", "cifar10"],
)
def test_it_has_the_parameters_of_the_published_network(config: NCSNConfig, count: int) -> None:
    with torch.device("meta"):
        state = NCSN(config).state_dict()
    assert sum(t.numel() for t in state.values()) == count


# What the published network computes, spelled out on its state dict.


def reference_norm(embed: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """Conditional instance normalization++, one image and one channel at a time."""
    out = torch.empty_like(x)
    width = x.shape[1]
    for n, label in enumerate(labels.tolist()):
        means = [x[n, k].mean().item() for k in range(width)]
        center = sum(means) / width
        variation = sum((m - center) ** 2 for m in means) / (width - 1)
        for k in range(width):
            gamma, alpha, beta = (embed[label, i * width + k].item() for i in range(3))
            pixels = x[n, k] - means[k]
            pixels = pixels / (pixels.square().mean().item() + 1e-5) ** 0.5
            shared = (means[k] - center) / (variation + 1e-5) ** 0.5
            out[n, k] = gamma * (pixels + alpha * shared) + beta
    return out


class Used(dict[str, Tensor]):
    """A state dict that notes which names are read."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__(state)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name: str) -> Tensor | None:  # type: ignore[override]
        self.used |= {name} & self.keys()
        return super().get(name)


def reference(state: dict[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
    def norm(name: str, x: Tensor) -> Tensor:
        return reference_norm(state[f"{name}.embed.weight"], x, labels)

    def conv(name: str, x: Tensor, dilation: int = 1) -> Tensor:
        w, b = state[f"{name}.weight"], state.get(f"{name}.bias")
        return F.conv2d(x, w, b, padding=dilation * (w.shape[-1] // 2), dilation=dilation)

    def halve(x: Tensor) -> Tensor:
        return (x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]) / 4

    def residual(name: str, x: Tensor, dilation: int = 1) -> Tensor:
        h = conv(f"{name}.conv1", F.elu(norm(f"{name}.normalize1", x)), dilation)
        h = F.elu(norm(f"{name}.normalize2", h))
        if name == "res2.0":
            return halve(conv(f"{name}.shortcut.conv", x)) + halve(conv(f"{name}.conv2.conv", h))
        has_shortcut = f"{name}.shortcut.weight" in state
        shortcut = conv(f"{name}.shortcut", x, dilation) if has_shortcut else x
        return shortcut + conv(f"{name}.conv2", h, dilation)

    def units(name: str, x: Tensor, count: int) -> Tensor:
        for i in range(1, count + 1):
            h = conv(f"{name}.{i}_1_conv", F.elu(norm(f"{name}.{i}_1_norm", x)))
            x = x + conv(f"{name}.{i}_2_conv", F.elu(norm(f"{name}.{i}_2_norm", h)))
        return x

    def refine(name: str, xs: list[Tensor], count: int = 1) -> Tensor:
        hs = [units(f"{name}.adapt_convs.{i}", x, 2) for i, x in enumerate(xs)]
        h = hs[0]
        if len(hs) > 1:
            hs = [
                conv(f"{name}.msf.convs.{i}", norm(f"{name}.msf.norms.{i}", h))
                for i, h in enumerate(hs)
            ]
            size = hs[0].shape[-2:]
            hs = [F.interpolate(h, size, mode="bilinear", align_corners=True) for h in hs]
            h = hs[0] + hs[1]
        h = path = F.elu(h)
        for i in range(2):
            path = F.avg_pool2d(norm(f"{name}.crp.norms.{i}", path), 5, stride=1, padding=2)
            path = conv(f"{name}.crp.convs.{i}", path)
            h = h + path
        return units(f"{name}.output_convs", h, count)

    layers = [conv("begin_conv", 2 * x - 1)]
    for stage, dilation in enumerate((1, 1, 2, 4), start=1):
        h = residual(f"res{stage}.0", layers[-1], dilation)
        layers.append(residual(f"res{stage}.1", h, dilation))
    h = refine("refine1", [layers[4]])
    h = refine("refine2", [layers[3], h])
    h = refine("refine3", [layers[2], h])
    h = refine("refine4", [layers[1], h], 3)
    return conv("end_conv", F.elu(norm("normalizer", h)))


def test_conditional_norm_is_the_formula() -> None:
    torch.manual_seed(1)
    norm = _ConditionalNorm(5, 3).double()
    torch.nn.init.normal_(norm.embed.weight)
    x = 2 * torch.randn(4, 5, 6, 7, dtype=torch.float64) + torch.randn(4, 5, 1, 1) - 1
    labels = torch.tensor([0, 2, 1, 2])
    expected = reference_norm(norm.embed.weight, x, labels)
    torch.testing.assert_close(norm(x, labels), expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_forward_is_the_published_one() -> None:
    network = tiny()
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    labels = torch.tensor([0, 2])
    state = Used(network.state_dict())
    expected = reference(state, x, labels)
    assert state.used == set(state)
    torch.testing.assert_close(network(x, labels), expected, rtol=1e-9, atol=1e-9)


def test_odd_sides_are_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        NCSN(NCSNConfig(size=27))


@torch.no_grad()
def test_every_item_has_its_own_label() -> None:
    network = tiny()
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64).expand(3, -1, -1, -1)
    apart = torch.cat([network(x[:1], torch.tensor([i])) for i in range(3)])
    torch.testing.assert_close(network(x, torch.arange(3)), apart)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (apart[i] - apart[j]).abs().max() > 1e-3


def test_levels_are_the_published_ones() -> None:
    denoiser = NCSNDenoiser(NCSN(NCSNConfig(width=4)))
    expected = [10 ** (-2 * i / 9) for i in range(10)]
    assert denoiser.levels.tolist() == pytest.approx(expected, rel=1e-6)
    # The levels follow from the configuration: a checkpoint holds the network's weights alone.
    assert all(name.startswith("network.") for name in denoiser.state_dict())


@torch.no_grad()
def test_denoiser_takes_the_nearest_level() -> None:
    network = tiny()
    denoiser = NCSNDenoiser(network).double()
    levels = [1.0, math.sqrt(0.1), 0.1]
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    # The second and third lie nearer to another level in sigma than in log sigma.
    sigma = torch.tensor([levels[1], 0.6, 0.19, 3.0, 0.02], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, 0, 2])
    score = network(x, labels)
    score *= (torch.tensor(levels)[labels] / sigma).view(-1, 1, 1, 1)
    expected = x + sigma.square().view(-1, 1, 1, 1) * score
    torch.testing.assert_close(denoiser(x, sigma), expected, rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_loss_is_weighted_score_matching() -> None:
    network = tiny()
    denoiser = NCSNDenoiser(network).double()
    labels = torch.arange(3)
    sigma = denoiser.levels[labels].view(-1, 1, 1, 1)
    clean = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    noisy = clean + sigma * torch.randn_like(clean)
    ours = (denoiser(noisy, sigma.flatten()) - clean) / denoiser.output_scale(sigma)
    target = (clean - noisy) / sigma.square()
    paper = sigma.square() * (network(noisy, labels) - target).square() / 2
    torch.testing.assert_close(ours.square() / 2, paper)
