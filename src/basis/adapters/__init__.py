"""Adapters: models that others trained, as priors."""

from __future__ import annotations

from basis.adapters.azula import from_azula
from basis.adapters.diffusers import (
    DiffusersDenoiser,
    build_diffusers,
    find_pipeline,
    from_diffusers,
)
from basis.adapters.glow import from_glow, read_checkpoint
from basis.adapters.ncsn import from_ncsn

__all__ = [
    "DiffusersDenoiser",
    "build_diffusers",
    "find_pipeline",
    "from_azula",
    "from_diffusers",
    "from_glow",
    "from_ncsn",
    "read_checkpoint",
]
