"""A large U-Net that starts from a small one computes the same, and can be trained on."""

import pytest
import torch

from basis.nn.growing import grow_head, grow_unet
from basis.nn.unet import UNet, UNetConfig, VarianceHead

SMALL = UNetConfig(channels=2, widths=(12, 24), blocks=(1, 2), head_width=12, embedding=16)


def disturbed(network, seed=0):
    """The network with none of its weights at zero, so that every path counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return network


@pytest.mark.parametrize(
    "sizes",
    [
        {"widths": (24, 24), "blocks": (1, 2)},
        {"widths": (12, 36), "blocks": (1, 2)},
        {"widths": (12, 60), "blocks": (1, 2)},  # heads of another size
        {"widths": (12, 24), "blocks": (3, 5)},
        {"widths": (12, 24, 36), "blocks": (1, 2, 2), "attention": 2},
        {"widths": (24, 48, 36, 12), "blocks": (2, 3, 1, 1), "attention": 3},
    ],
)
@pytest.mark.parametrize("dims", [1, 2])
def test_larger_network_computes_the_same(sizes, dims):
    same = {"channels": 2, "head_width": 12, "embedding": 16, "dims": dims}
    small = disturbed(UNet(UNetConfig(widths=(12, 24), blocks=(1, 2), **same)))
    large = UNet(UNetConfig(**same, **sizes))
    grow_unet(small, large)
    x = torch.randn(3, 2, *[32] * dims)
    label = torch.tensor([-1.0, 0.0, 0.7])
    expected = small(x, label)
    assert expected.std() > 0.1
    torch.testing.assert_close(large(x, label), expected, rtol=1e-4, atol=1e-4)


def test_new_channels_learn():
    small = disturbed(UNet(SMALL))
    large = UNet(
        UNetConfig(channels=2, widths=(24, 48), blocks=(1, 2), head_width=12, embedding=16)
    )
    grow_unet(small, large)
    large(torch.randn(2, 2, 16, 16), torch.zeros(2)).square().mean().backward()
    assert large.leave.weight.grad[:, 12:].abs().max() > 0  # what new channels say counts soon


def test_variance_head_grows():
    small, large = disturbed(VarianceHead(SMALL)), VarianceHead(UNetConfig(2, widths=(24, 48)))
    grow_head(small, large)
    features = torch.randn(2, 24, 8, 8)
    torch.testing.assert_close(large(features), small(features[:, :12]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"widths": (16, 24)}, "multiples of 12"),
        ({"widths": (12, 12)}, "wider"),
        ({"attention": 0}, "attention"),
        ({"fold": 4}, "fold"),
    ],
)
def test_what_does_not_fit_is_named(sizes, reason):
    values = {"widths": (12, 24), "blocks": (1, 2), "head_width": 12, "embedding": 16}
    large = UNet(UNetConfig(**({"channels": 2} | values | sizes)))
    with pytest.raises(ValueError, match=reason):
        grow_unet(UNet(SMALL), large)
