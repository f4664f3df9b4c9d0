"""Mixings describe how the sources became the observation."""

from __future__ import annotations

from basis.mixings.convolutions import convolution
from basis.mixings.downsampling import downsample
from basis.mixings.linear_map import linear
from basis.mixings.matrix import grey, mixture, mixtures
from basis.mixings.mixing import Mixing

__all__ = [
    "Mixing",
    "convolution",
    "downsample",
    "grey",
    "linear",
    "mixture",
    "mixtures",
]
