"""Networks: the house U-Net and its preconditioning, the published NCSN, and Glow."""

from basis.nn._glow import Glow, GlowConfig, bits_per_dimension
from basis.nn._ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn._unet import Denoiser, UNet, UNetConfig, VarianceHead

__all__ = [
    "NCSN",
    "Denoiser",
    "Glow",
    "GlowConfig",
    "NCSNConfig",
    "NCSNDenoiser",
    "UNet",
    "UNetConfig",
    "VarianceHead",
    "bits_per_dimension",
]
