"""Networks: the U-Net and its preconditioning, the published NCSN, models with a likelihood.

Names load at first use: what is public in a file of this folder (its `__all__`) is public here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.families import GlowConfig, NCSNConfig, PixelCNNConfig, UNetConfig, VAEConfig

if TYPE_CHECKING:
    from basis.nn._energy import Energy, LevelConstant
    from basis.nn._experts import Experts
    from basis.nn._glow import Glow, bits_per_dimension
    from basis.nn._growing import grow_head, grow_unet
    from basis.nn._ncsn import NCSN, NCSNDenoiser
    from basis.nn._pixelcnn import PixelCNN
    from basis.nn._told import Told, class_weights
    from basis.nn._unet import Denoiser, UNet, VarianceHead
    from basis.nn._vae import VAE
    from basis.nn._variance_network import VarianceNetwork, variance_sizes

__all__ = [
    "NCSN",
    "VAE",
    "Denoiser",
    "Energy",
    "Experts",
    "Glow",
    "GlowConfig",
    "LevelConstant",
    "NCSNConfig",
    "NCSNDenoiser",
    "PixelCNN",
    "PixelCNNConfig",
    "Told",
    "UNet",
    "UNetConfig",
    "VAEConfig",
    "VarianceHead",
    "VarianceNetwork",
    "bits_per_dimension",
    "class_weights",
    "grow_head",
    "grow_unet",
    "variance_sizes",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # asked for by the import system, and never a network
        raise AttributeError(f"module 'basis.nn' has no attribute {name!r}")
    # Found by their files, so that a new family of networks needs no line here.
    for file in sorted(Path(__file__).parent.glob("_[!_]*.py")):
        module = importlib.import_module(f"basis.nn.{file.stem}")
        for public in getattr(module, "__all__", ()):
            globals().setdefault(public, getattr(module, public))
    if name not in globals():
        raise AttributeError(f"module 'basis.nn' has no attribute {name!r}")
    return globals()[name]
