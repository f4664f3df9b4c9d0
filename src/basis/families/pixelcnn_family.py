"""PixelCNN, an autoregressive model of 8-bit images."""

from __future__ import annotations

from dataclasses import dataclass

from basis.families._family import Family, size_field


@dataclass(frozen=True)
class PixelCNNConfig:
    """Sizes of a `PixelCNN`: residual blocks of `width` channels, logistics per value."""

    channels: int = size_field(1, "channels of the data", flag=False)
    width: int = size_field(48, "channels")
    blocks: int = size_field(6, "residual blocks")
    logistics: int = size_field(5, "logistics per pixel and channel")
    kernel: int = size_field(5, "side of the convolutions")
    embedding: int = size_field(64, "numbers that describe the noise level")
    mean: float = size_field(0.5, "mean of the data's values", flag=False)
    std: float = size_field(0.5, "standard deviation of the data's values", flag=False, above=0.0)


FAMILY = Family(
    kind="pixelcnn",
    title="autoregressive",
    sizes=PixelCNNConfig,
    module="basis.nn:PixelCNN",
    objective="likelihood",
    noise="continuous",
    unit_range=True,  # its logistics are discretised to steps of 1/255
)
