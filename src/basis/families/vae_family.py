"""A variational autoencoder, whose evidence bound stands for log p."""

from __future__ import annotations

from dataclasses import dataclass

from basis.families._family import Family, size_field


@dataclass(frozen=True)
class VAEConfig:
    """Sizes of a `VAE`: two halvings of the side, then dense layers to `latent` numbers.

    `draws` estimate the evidence bound.
    """

    channels: int = size_field(1, "channels of the data", flag=False)
    size: int = size_field(28, "side of the images", flag=False)
    width: int = size_field(32, "channels of the finest level")
    latent: int = size_field(32, "numbers of the latent")
    draws: int = size_field(4, "draws that estimate the evidence bound")
    embedding: int = size_field(64, "numbers that describe the noise level")
    mean: float = size_field(0.5, "mean of the data's values", flag=False)
    std: float = size_field(0.5, "standard deviation of the data's values", flag=False, above=0.0)


FAMILY = Family(
    kind="vae",
    title="autoencoder",
    sizes=VAEConfig,
    module="basis.nn:VAE",
    objective="likelihood",
    noise="continuous",
)
