"""An energy: a density made of the U-Net, whose gradient denoises."""

from __future__ import annotations

from functools import partial

from basis.families._family import Family
from basis.families.unet_family import UNetConfig, build_around, describe_around

FAMILY = Family(
    kind="energy",
    title="energy",
    sizes=UNetConfig,
    module="basis.nn:Energy",
    objective="energy",
    build=partial(build_around, "basis.nn:Energy"),
    describe=describe_around,
)
