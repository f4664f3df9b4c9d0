"""How sure a model is that has no hidden state to read it from: a small U-Net of its own."""

from __future__ import annotations

from torch import Tensor, nn

from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead


class VarianceNetwork(nn.Module):
    """The variance of each clean value given the noisy signal, by a U-Net that sees the latter.

    A density of which only the gradient is known, such as a flow, gives the mean of the clean
    signal (Tweedie's formula) but says nothing dependable of its variance, which this network has
    learned instead. It is a small denoiser with a head: a variance is one about a mean, so that it
    learns a mean of its own, of which nothing else is asked.

    Args:
        config: Sizes of the U-Net.
        mean, std: Mean and standard deviation of the data's values.
    """

    def __init__(self, config: UNetConfig, mean: float, std: float) -> None:
        super().__init__()
        self.denoiser = Denoiser(UNet(config), mean, std, VarianceHead(config))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The variance of each value; x is (batch, channels, *size), sigma (batch,)."""
        return self.denoiser.moments(x, sigma)[1]

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError where signals of this shape, (channels, *size), do not fit."""
        config = self.denoiser.network.config
        channels, *size = shape
        if channels != config.channels or len(size) != config.dims:
            raise ValueError(
                f"signals of shape {shape} do not fit the network of their variance: it takes "
                f"{config.channels} channels and {config.dims} axes"
            )
        self.denoiser.check_shape(shape)


def variance_sizes(shape: tuple[int, ...]) -> UNetConfig:
    """Sizes of a small U-Net for signals of this shape, (channels, *size)."""
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
