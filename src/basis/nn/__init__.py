"""Networks: the house U-Net and its preconditioning, and the published NCSN."""

from basis.nn._ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn._unet import Denoiser, UNet, UNetConfig, VarianceHead

__all__ = ["NCSN", "Denoiser", "NCSNConfig", "NCSNDenoiser", "UNet", "UNetConfig", "VarianceHead"]
