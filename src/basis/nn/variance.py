"""A variance network, for models that have no hidden state to read the variance from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn

from basis.nn.kind import Architecture, entry, number, read_config
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead


class VarianceNetwork(nn.Module):
    """The variance of each clean value given the noisy signal, by a small U-Net of its own.

    The gradient of a density, such as a flow, gives the mean of the clean signal (Tweedie's
    formula) but no reliable variance, which this network learns instead. It is a small denoiser
    with a variance head; its own mean is not used.

    Args:
        config: Configuration of the U-Net.
        mean, std: Mean and standard deviation of the data's values.
    """

    def __init__(self, config: UNetConfig, mean: float, std: float) -> None:
        super().__init__()
        self.denoiser = Denoiser(UNet(config), mean, std, VarianceHead(config))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The variance of each value; x is (batch, channels, *size), sigma (batch,)."""
        return self.denoiser.moments(x, sigma)[1]

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError if signals of this shape, (channels, *size), do not fit."""
        config = self.denoiser.network.config
        channels, *size = shape
        if channels != config.channels or len(size) != config.dims:
            raise ValueError(
                f"signals of shape {shape} do not fit the variance network: it takes "
                f"{config.channels} channels and {config.dims} axes"
            )
        self.denoiser.check_shape(shape)


def variance_config(shape: tuple[int, ...]) -> UNetConfig:
    """The configuration of a variance network for signals of this shape, (channels, *size)."""
    channels, *size = shape
    fold = 2 if all(side % 2 == 0 for side in size) else 1
    two = all(side % (2 * fold) == 0 for side in size)
    return UNetConfig(
        channels=channels,
        fold=fold,
        widths=(24, 48) if two else (24,),
        blocks=(2, 3) if two else (2,),
        attention=1 if two else 0,
        head_width=24,
        embedding=64,
        dims=len(size),
    )


def build_variance(architecture: Architecture) -> VarianceNetwork | None:
    """The variance network that an architecture holds under "variance", if any."""
    if "variance" not in architecture:
        return None
    own = entry(architecture, "variance")
    config = read_config(UNetConfig, own)
    return VarianceNetwork(config, number(own, "mean"), number(own, "std", positive=True))


def describe_variance(head: VarianceNetwork | None) -> dict[str, Any]:
    """The entry from which `build_variance` makes the network again."""
    if head is None:
        return {}
    own = head.denoiser
    config = asdict(own.network.config)
    return {"variance": {"network": config, "mean": own.mean, "std": own.std}}
