"""Adapters: models that others trained, as priors."""

from __future__ import annotations

from basis.adapters.azula import from_azula
from basis.adapters.diffusers import (
    DiffusersDenoiser,
    build_diffusers,
    find_pipeline,
    from_diffusers,
)
from basis.adapters.glow import read_checkpoint, read_glow
from basis.adapters.ncsn import read_ncsn

__all__ = [
    "DiffusersDenoiser",
    "build_diffusers",
    "find_pipeline",
    "from_azula",
    "from_diffusers",
    "read_checkpoint",
    "read_glow",
    "read_ncsn",
]
