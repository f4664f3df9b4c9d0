"""The U-Net: a small network that is good per floating-point operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from basis.families._family import Family, entry, level, refer, size_field


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a `UNet`.

    `fold` is the side of the square of pixels (or the length of the piece of a signal) laid into
    channels before the first convolution, `widths` and `blocks` give channels and residual blocks
    per level (finest first; the blocks of every level but the last are built twice, going down and
    coming up), and the last `attention` levels carry self-attention. `dims` is the number of axes
    after the channels: 1 for signals, 2 for images, 3 for volumes. A network with `classes` may be
    told which of them a signal is of.
    """

    channels: int = size_field(1, "channels of the data", flag=False)
    fold: int = size_field(2, "pixels per side laid into channels", most=64)
    widths: tuple[int, ...] = size_field((48, 96), "channels per level")
    blocks: tuple[int, ...] = size_field((2, 4), "residual blocks per level")
    attention: int = size_field(1, "coarsest levels with attention", least=0)
    head_width: int = size_field(32, "channels of one attention head")
    embedding: int = size_field(128, "numbers that describe the noise level")
    dropout: float = size_field(0.0, "share dropped in training", at_least=0.0, at_most=0.99)
    dims: int = size_field(2, "axes after the channels", flag=False, most=3)
    classes: int = size_field(0, "classes that it may be told", flag=False, least=0)


def build_around(module: str, architecture: Mapping[str, Any]) -> Any:
    """A module of this reference around the U-Net that a card's `architecture` describes."""
    config = FAMILY.make_sizes(entry(architecture, "network"))
    head = refer("basis.nn:VarianceHead")(config) if architecture.get("variance") else None
    network = refer("basis.nn:UNet")(config)
    mean, std = level(architecture, "mean"), level(architecture, "std", positive=True)
    return refer(module)(network, mean, std, head)


def describe_around(module: Any) -> dict[str, Any]:
    """The `architecture` of a module around a U-Net, without its kind."""
    sizes = asdict(module.network.config)
    if not sizes["classes"]:
        del sizes["classes"]  # as cards and runs were written before there were any
    entry = {"network": sizes, "mean": module.mean, "std": module.std}
    return entry | ({"variance": True} if module.head is not None else {})


FAMILY = Family(
    kind="unet",
    title="score",
    sizes=UNetConfig,
    module="basis.nn:Denoiser",
    build=partial(build_around, "basis.nn:Denoiser"),
    describe=describe_around,
    # An energy is built on the same network, and says so by its density; experts are two.
    belongs=lambda module: (
        isinstance(module.network, refer("basis.nn:UNet"))
        and not hasattr(module, "log_prob")
        and not hasattr(module, "above")
    ),
)
