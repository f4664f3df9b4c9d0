"""Unconditional models of the library diffusers, with their schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from basis.nn.kinds import Family, entry, refer


def _build(architecture: Mapping[str, Any]) -> Any:
    build = refer("basis.adapters:build_diffusers")
    network, scheduler = (entry(architecture, name) for name in ("network", "scheduler"))
    return build(network, scheduler, architecture.get("pixels"))


FAMILY = Family(
    kind="diffusers",
    title="score",
    sizes=None,
    module="basis.adapters:DiffusersDenoiser",
    trainable=False,
    build=_build,
    describe=lambda module: module.describe(),
)
