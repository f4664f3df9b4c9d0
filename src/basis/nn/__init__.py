"""Networks. Each file holds one kind: its configuration, its module and how cards describe it."""

from __future__ import annotations

from basis.nn.conditional import Told, class_weights
from basis.nn.energy import Energy, LevelConstant
from basis.nn.experts import Experts
from basis.nn.glow import Glow, GlowConfig, bits_per_dimension
from basis.nn.kinds import Family, all_families, describe_module, find_family
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead, grow_head, grow_unet
from basis.nn.variance import VarianceNetwork, variance_sizes

__all__ = [
    "NCSN",
    "Denoiser",
    "Energy",
    "Experts",
    "Family",
    "Glow",
    "GlowConfig",
    "LevelConstant",
    "NCSNConfig",
    "NCSNDenoiser",
    "Told",
    "UNet",
    "UNetConfig",
    "VarianceHead",
    "VarianceNetwork",
    "all_families",
    "bits_per_dimension",
    "class_weights",
    "describe_module",
    "find_family",
    "grow_head",
    "grow_unet",
    "variance_sizes",
]
