"""Doors: models that others trained, as priors."""

from basis.adapters._azula import from_azula
from basis.adapters._diffusers import from_diffusers
from basis.adapters._glow_checkpoint import convert_glow, read_glow
from basis.adapters._ncsn_checkpoint import convert_ncsn, read_ncsn
from basis.adapters._tensorflow_checkpoint import read_checkpoint

__all__ = [
    "convert_glow",
    "convert_ncsn",
    "from_azula",
    "from_diffusers",
    "read_checkpoint",
    "read_glow",
    "read_ncsn",
]
