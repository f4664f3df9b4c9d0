"""Two U-Nets, one for little noise and one for much; joined by `basis.priors.join_by_noise`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis.families._family import Family, entry, level, refer
from basis.families.unet_family import UNetConfig, build_around, describe_around


def _build(architecture: Mapping[str, Any]) -> Any:
    denoiser = build_around("basis.nn:Denoiser", architecture)
    above = build_around("basis.nn:Denoiser", entry(architecture, "above"))
    sigma = level(architecture, "sigma", positive=True)
    return refer("basis.nn:Experts")(denoiser, above, sigma)


def _describe(module: Any) -> dict[str, Any]:
    above = describe_around(module.above)
    return describe_around(module) | {"above": above, "sigma": module.sigma}


FAMILY = Family(
    kind="experts",
    title="score",
    sizes=UNetConfig,
    module="basis.nn:Experts",
    trainable=False,
    build=_build,
    describe=_describe,
)
