"""Families: the kinds of network that can be trained or loaded, one file each.

A file without a leading underscore in this folder describes one family: the sizes of its network,
where the network is, and how it is trained. Nothing here imports torch, so that a command line can
list all sizes at once.
"""

from basis.families._family import (
    Family,
    all_families,
    describe_module,
    find_family,
    refer,
    size_field,
)
from basis.families.glow_family import GlowConfig
from basis.families.ncsn_family import NCSNConfig
from basis.families.pixelcnn_family import PixelCNNConfig
from basis.families.unet_family import UNetConfig
from basis.families.vae_family import VAEConfig

__all__ = [
    "Family",
    "GlowConfig",
    "NCSNConfig",
    "PixelCNNConfig",
    "UNetConfig",
    "VAEConfig",
    "all_families",
    "describe_module",
    "find_family",
    "refer",
    "size_field",
]
