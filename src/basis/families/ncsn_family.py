"""NCSN, the published noise-conditional score network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from basis.families._family import Family, entry, refer, size_field


@dataclass(frozen=True)
class NCSNConfig:
    """Sizes of an `NCSN` and the noise levels it knows; the defaults are those published for MNIST.

    `width` is the channels of the finest stage (64 for MNIST, 128 for CIFAR-10), every other stage
    having twice as many. The `levels` noise levels run geometrically from `sigma_max` down to
    `sigma_min`. `size` is the side of the images trained on; no weight depends on it.
    """

    channels: int = size_field(1, "channels of the data", flag=False)
    size: int = size_field(28, "side of the images", flag=False)
    width: int = size_field(64, "channels of the finest stage")
    levels: int = size_field(10, "noise levels")
    # Not the training's --sigma-min and --sigma-max, whose defaults are another range.
    sigma_max: float = size_field(1.0, "largest noise level", flag=False, above=0.0)
    sigma_min: float = size_field(0.01, "smallest noise level", flag=False, above=0.0)


def _build(architecture: Mapping[str, Any]) -> Any:
    network = refer("basis.nn:NCSN")(FAMILY.make_sizes(entry(architecture, "network")))
    return refer("basis.nn:NCSNDenoiser")(network)


FAMILY = Family(
    kind="ncsn",
    title="score",
    sizes=NCSNConfig,
    module="basis.nn:NCSNDenoiser",
    noise="discrete",
    unit_range=True,  # the network itself maps [0, 1] to [-1, 1]
    build=_build,
    describe=lambda module: {"network": asdict(module.network.config)},
)
