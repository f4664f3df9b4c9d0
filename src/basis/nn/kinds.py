"""The kinds of networks, by name."""

from __future__ import annotations

from typing import Any

from basis.errors import BasisError, did_you_mean
from basis.nn import diffusers, energy, experts, glow, ladder, ncsn, unet
from basis.nn.kind import NetworkKind

# A new kind of network is a file of this folder and its entry here.
KINDS: dict[str, NetworkKind] = {
    module.KIND.name: module.KIND
    for module in (unet, experts, energy, glow, ladder, ncsn, diffusers)
}
"""Every kind of network by its name."""


def find_kind(name: Any, *, trainable: bool = False) -> NetworkKind:
    """The kind of this name."""
    names = [name for name, kind in KINDS.items() if kind.trainable or not trainable]
    if not isinstance(name, str) or name not in names:
        raise BasisError(
            f"unknown kind of network {name!r:.60}; accepted: {', '.join(names)}"
            f"{did_you_mean(name, names)}"
        )
    return KINDS[name]


def describe_module(module: Any) -> dict[str, Any]:
    """The `architecture` entry of a card from which this module can be built again."""
    for kind in KINDS.values():
        if type(module) is kind.module:
            return kind.describe_module(module)
    raise BasisError(f"a {type(module).__name__} cannot be described by a card")
