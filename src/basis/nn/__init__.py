"""Networks: the house U-Net and its preconditioning, the published NCSN, and models with a likelihood."""

from basis.nn._glow import Glow, GlowConfig, bits_per_dimension
from basis.nn._ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn._pixelcnn import PixelCNN, PixelCNNConfig
from basis.nn._unet import Denoiser, UNet, UNetConfig, VarianceHead
from basis.nn._vae import VAE, VAEConfig

__all__ = [
    "NCSN",
    "VAE",
    "Denoiser",
    "Glow",
    "GlowConfig",
    "NCSNConfig",
    "NCSNDenoiser",
    "PixelCNN",
    "PixelCNNConfig",
    "UNet",
    "UNetConfig",
    "VAEConfig",
    "VarianceHead",
    "bits_per_dimension",
]
