"""Mixings describe how the sources became the observation."""

from __future__ import annotations

from basis.mixings.convolutions import Convolution, convolution
from basis.mixings.downsampling import Downsample, downsample
from basis.mixings.limited import Limited
from basis.mixings.linear_map import Linear, linear
from basis.mixings.matrix import MatrixMixing, grey, mixture, mixtures
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing

__all__ = [
    "Convolution",
    "Downsample",
    "Limited",
    "Linear",
    "MatrixMixing",
    "Mixing",
    "PerItemMixing",
    "convolution",
    "downsample",
    "grey",
    "linear",
    "mixture",
    "mixtures",
]
