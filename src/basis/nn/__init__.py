"""Networks: the house U-Net and its preconditioning, and the published NCSN."""

from basis.nn._unet import Denoiser, UNet, UNetConfig

__all__ = ["Denoiser", "UNet", "UNetConfig"]
