"""Networks. Each file holds one kind: its configuration, its module and how cards describe it."""

from __future__ import annotations

from basis.nn.energy import Energy, LevelConstant
from basis.nn.experts import Experts
from basis.nn.glow import Glow, GlowConfig, bits_per_dimension
from basis.nn.growing import grow_head, grow_unet
from basis.nn.kind import NetworkKind
from basis.nn.kinds import KINDS, describe_module, find_kind
from basis.nn.ladder import Ladder
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn.unet import (
    ClassConditional,
    Denoiser,
    UNet,
    UNetConfig,
    VarianceHead,
    class_weights,
)
from basis.nn.variance import VarianceNetwork, variance_config

__all__ = [
    "KINDS",
    "NCSN",
    "ClassConditional",
    "Denoiser",
    "Energy",
    "Experts",
    "Glow",
    "GlowConfig",
    "Ladder",
    "LevelConstant",
    "NCSNConfig",
    "NCSNDenoiser",
    "NetworkKind",
    "UNet",
    "UNetConfig",
    "VarianceHead",
    "VarianceNetwork",
    "bits_per_dimension",
    "class_weights",
    "describe_module",
    "find_kind",
    "grow_head",
    "grow_unet",
    "variance_config",
]
