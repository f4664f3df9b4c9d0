"""Adapters: models that others trained, as priors."""

from basis.adapters._azula import from_azula
from basis.adapters._diffusers import DiffusersDenoiser, from_diffusers
from basis.adapters._diffusers_files import build_diffusers, find_pipeline
from basis.adapters._glow_checkpoint import read_glow
from basis.adapters._ncsn_checkpoint import read_ncsn
from basis.adapters._tensorflow_checkpoint import read_checkpoint

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
