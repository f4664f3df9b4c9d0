"""Mixings: how the sources became what was observed.

Every file of this room without a leading underscore is found by itself, and the names in its
`__all__` are public here and as `basis.<name>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import import_modules
from basis.mixings._mixing import Mixing as Mixing
from basis.mixings._values import clamp as clamp

if TYPE_CHECKING:
    from basis.mixings.convolutions import Convolution as Convolution
    from basis.mixings.convolutions import convolution as convolution
    from basis.mixings.downsampling import Downsample as Downsample
    from basis.mixings.downsampling import downsample as downsample
    from basis.mixings.limited import Limited as Limited
    from basis.mixings.linear_map import Linear as Linear
    from basis.mixings.linear_map import linear as linear
    from basis.mixings.matrix import MatrixMixing as MatrixMixing
    from basis.mixings.matrix import grey as grey
    from basis.mixings.matrix import grey_mixture as grey_mixture
    from basis.mixings.matrix import mixture as mixture
    from basis.mixings.matrix import mixtures as mixtures
    from basis.mixings.weighted import WeightedMixing as WeightedMixing

__all__ = ["Mixing", "clamp"]

for _module in import_modules("mixings").values():
    for _name in _module.__all__:
        globals()[_name] = getattr(_module, _name)
        __all__ += [_name]
