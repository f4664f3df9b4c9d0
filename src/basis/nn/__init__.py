"""Networks. Each file holds one kind: its configuration, its module and how cards describe it."""

from __future__ import annotations

from basis.nn.glow import Glow, GlowConfig
from basis.nn.kind import NetworkKind
from basis.nn.kinds import KINDS
from basis.nn.ncsn import NCSN, NCSNConfig
from basis.nn.unet import Denoiser, UNet, UNetConfig

__all__ = [
    "KINDS",
    "NCSN",
    "Denoiser",
    "Glow",
    "GlowConfig",
    "NCSNConfig",
    "NetworkKind",
    "UNet",
    "UNetConfig",
]
