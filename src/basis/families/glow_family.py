"""Glow, a flow with an exact likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from basis.families._family import Family, size_field


@dataclass(frozen=True)
class GlowConfig:
    """Sizes of a `Glow`.

    `levels` halvings of the side with `depth` steps each and couplings of `width` hidden channels.
    Before them may be `wide` steps whose couplings are U-Nets with attention and see the whole
    picture; they begin as the identity, so that a flow without them can be started from.
    `lu` keeps the 1x1 convolutions as triangular factors; the published weights are plain matrices.
    `scale` is how an affine coupling bounds its scale: "sigmoid" as published, "bounded" in both
    directions and in what its network is shown, which stays invertible on inputs far from the
    training set.
    """

    channels: int = size_field(1, "channels of the data", flag=False)
    size: int = size_field(28, "side of the images", flag=False)
    levels: int = size_field(2, "halvings of the side", most=16)
    depth: int = size_field(8, "steps per level")
    width: int = size_field(96, "hidden channels of a coupling")
    wide: int = size_field(0, "steps with U-Nets before all others, an even number", least=0)
    wide_width: int = size_field(32, "channels of such a U-Net's finest level")
    coupling: Literal["affine", "additive"] = size_field("affine", "kind of coupling")
    scale: Literal["bounded", "sigmoid"] = size_field(
        "bounded", "how an affine coupling bounds its scale", flag=False
    )
    lu: bool = size_field(True, "1x1 convolutions as triangular factors", flag=False)
    learned_top: bool = size_field(True, "learned prior of the last latent", flag=False)
    conditioned: bool = size_field(False, "one flow for all noise levels", flag=False)
    embedding: int = size_field(64, "numbers that describe the noise level")
    mean: float = size_field(0.5, "mean of the data's values", flag=False)
    std: float = size_field(1.0, "standard deviation of the data's values", flag=False, above=0.0)


FAMILY = Family(
    kind="glow",
    title="flow",
    sizes=GlowConfig,
    module="basis.nn:Glow",
    objective="likelihood",
    noise="continuous",
)
