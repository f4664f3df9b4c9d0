"""Adapters: models trained with other libraries, as priors."""

from __future__ import annotations

from basis.adapters.azula import from_azula
from basis.adapters.diffusers import from_diffusers
from basis.adapters.glow import from_glow
from basis.adapters.ncsn import from_ncsn

__all__ = [
    "from_azula",
    "from_diffusers",
    "from_glow",
    "from_ncsn",
]
