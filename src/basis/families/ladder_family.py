"""One flow per noise level; trained by `basis.training.train_ladder`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from basis._errors import BasisError
from basis.families import glow_family
from basis.families._family import Family, entry, level, refer


def _build(architecture: Mapping[str, Any]) -> Any:
    flow = {"network": entry(architecture, "network")}
    given = architecture.get("sigmas")
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= 1000:
        raise BasisError(f"a ladder's sigmas must be a list of noise levels, not {given!r:.60}")
    sigmas = [level({"sigma": s}, "sigma", positive=True) for s in given]
    return refer("basis.priors:Ladder")({s: glow_family.FAMILY.build_module(flow) for s in sigmas})


def _describe(module: Any) -> dict[str, Any]:
    return {"network": asdict(module.rungs[0].config), "sigmas": list(module.sigmas)}


FAMILY = Family(
    kind="ladder",
    title="flow",
    sizes=glow_family.GlowConfig,
    module="basis.priors:Ladder",
    trainable=False,
    objective="likelihood",
    build=_build,
    describe=_describe,
    belongs=lambda module: isinstance(module.rungs[0], refer("basis.nn:Glow")),
)
