"""Doors: models that others trained, as priors."""

from basis.adapters._azula import from_azula
from basis.adapters._diffusers import from_diffusers
from basis.adapters._glow import convert_glow, read_glow
from basis.adapters._ncsn import convert_ncsn, read_ncsn
from basis.adapters._tensorflow import read_checkpoint

__all__ = [
    "convert_glow",
    "convert_ncsn",
    "from_azula",
    "from_diffusers",
    "read_checkpoint",
    "read_glow",
    "read_ncsn",
]
