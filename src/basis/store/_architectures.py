"""Networks from the `architecture` entry of a card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from basis._errors import BasisError
from basis.families import find_family


def build_module(architecture: Mapping[str, Any]) -> nn.Module:
    """The untrained network that an `architecture` entry of a card describes."""
    family = find_family(architecture.get("kind"))
    try:
        module: nn.Module = family.build_module(architecture)
    except BasisError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BasisError(f"a card's architecture cannot be built: {line}") from error
    return module
