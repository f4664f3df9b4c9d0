"""How sure a model is that has no hidden state to read it from: a small U-Net of its own."""

from __future__ import annotations

from torch import Tensor, nn

from basis._tensors import per_item
from basis.families import UNetConfig
from basis.nn._unet import UNet

__all__ = ["VarianceNetwork", "variance_sizes"]


class VarianceNetwork(nn.Module):
    """The variance of each clean value given the noisy signal, by a U-Net that sees the latter.

    A density of which only the gradient is known, such as a flow, gives the mean of the clean
    signal (Tweedie's formula) but says nothing dependable of its variance. This network learns it
    from the errors of that mean, and is asked beside the density.

    Args:
        config: Sizes of the U-Net.
        mean, std: Mean and standard deviation of the data's values.
    """

    def __init__(self, config: UNetConfig, mean: float, std: float) -> None:
        super().__init__()
        self.network, self.mean, self.std = UNet(config), mean, std

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The variance of each value; x is (batch, channels, *size), sigma (batch,)."""
        s = per_item(sigma, x)
        return self.output_scale(s).square() * self.log_variance(x, sigma).exp()

    def log_variance(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Its logarithm in units of the output scale; shapes as in `forward`."""
        total = (per_item(sigma, x).square() + self.std**2).sqrt()
        # Bounded as a `VarianceHead` is.
        return self.network((x - self.mean) / total, sigma.log() / 4).clamp(-24.0, 2.0)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError where signals of this shape, (channels, *size), do not fit."""
        config, multiple = self.network.config, self.network.multiple
        channels, *size = shape
        fits = channels == config.channels and len(size) == config.dims
        if not fits or any(side % multiple for side in size):
            raise ValueError(
                f"signals of shape {shape} do not fit the network of their variance: it takes "
                f"{config.channels} channels and {config.dims} axes of multiples of {multiple}"
            )

    def output_scale(self, sigma: Tensor) -> Tensor:
        """The deviation that values of the data have at sigma if nothing but their spread is known;
        any shape.
        """
        return sigma * self.std / (sigma.square() + self.std**2).sqrt()


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
