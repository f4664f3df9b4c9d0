"""Networks from the `architecture` entry of a card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from basis._errors import BasisError
from basis._texts import one_line
from basis._weights import Shapes, build_fitting
from basis.families import find_family
from basis.priors import Card


def build_module(architecture: Mapping[str, Any], shapes: Shapes | None = None) -> nn.Module:
    """The untrained network that an `architecture` entry of a card describes.

    Args:
        architecture: The entry.
        shapes: Those of the weights it is to hold, where they are known: building stops where it
            outgrows them.
    """
    family = find_family(architecture.get("kind"))

    def build() -> nn.Module:
        # First weights are random and about to be replaced: the caller's numbers are left alone.
        with torch.random.fork_rng(devices=[]):
            module: nn.Module = family.build_module(architecture)
        return module

    try:
        if shapes is None:
            return build()
        return build_fitting(build, shapes, "a card's architecture cannot be built")
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # layers raise anything on sizes that do not go together
        raise BasisError(f"a card's architecture cannot be built: {one_line(error)}") from error


def check_shape(path: Path, card: Card, module: nn.Module) -> None:
    """Refuses a card whose signals are none that its network takes.

    Args:
        path: The card's file, for errors.
        card: The card.
        module: The network built from it.
    """
    network = card.architecture.get("network")
    facts = {"channels": card.shape[0], "dims": len(card.shape) - 1}
    if len(card.shape) == 3:
        facts["size"] = card.shape[1]
    sizes = network if isinstance(network, Mapping) else {}
    for name, fact in facts.items():
        if sizes.get(name, fact) != fact:
            raise BasisError(
                f"{path}: its signals have shape {card.shape} and its network {name} "
                f"{sizes[name]!r:.40}; the two must agree"
            )
    for part in (module, getattr(module, "head", None)):
        check = getattr(part, "check_shape", None)
        if check is not None:
            try:
                check(card.shape)
            except ValueError as error:
                raise BasisError(f"{path}: {one_line(error)}") from error
