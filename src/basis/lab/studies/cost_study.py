"""Operations and seconds of one step of a sampler."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from basis.errors import BasisError
from basis.plots.charts import Table
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled


@dataclass(frozen=True)
class Cost:
    """What one step costs: one denoising of one signal, in tiles where it exceeds the prior's.

    Attributes:
        prior: The prior's name.
        size: Size of the signal, without its channels: (height, width) of a picture.
        tiles: Network evaluations of one step.
        flops: Operations of one step (a multiplication and an addition are two).
        seconds: Of one step, where and as it was measured.
    """

    prior: str
    size: tuple[int, ...]
    tiles: int
    flops: int
    seconds: float

    @property
    def side(self) -> int:
        """The first number of the size: the height of a picture."""
        return self.size[0] if self.size else 1

    @property
    def pixels(self) -> int:
        """Places in the signal."""
        return math.prod(self.size)


def evaluation_cost(prior: Prior, side: int | None = None, *, repeats: int = 3) -> Cost:
    """Counts the operations of a step on one signal and times it, the shortest of several.

    Args:
        prior: Any prior.
        side: Side of a picture larger than the prior's own, which is cut into tiles.
        repeats: Times that the step is timed.
    """
    from torch.utils.flop_counter import FlopCounterMode

    channels, *own = prior.shape
    size, larger = tuple(own), prior
    if side is not None and size != (side, side):
        if len(size) != 2:
            raise BasisError(
                f"sides are for priors of pictures; prior {prior.name!r} is for signals of shape "
                f"{tuple(prior.shape)}"
            )
        size, larger = (side, side), Tiled(prior, side, side)
    x = torch.rand(1, channels, *size, device=prior.device)
    sigma = math.sqrt(prior.sigma_min * prior.sigma_max)
    with FlopCounterMode(display=False) as counter:
        larger.denoise(x, sigma)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        larger.denoise(x, sigma).sum().item()  # the sum waits for a device that works on its own
        times.append(time.perf_counter() - started)
    tiles = larger.cost // prior.cost
    return Cost(prior.name, size, tiles, counter.get_total_flops(), min(times))


def cost_table(costs: Sequence[Cost], steps: int, k: int) -> Table:
    """Costs of one step, and of a separation of k sources with this number of steps each."""
    rows = []
    for c in costs:
        work = steps * k
        rows.append(
            (
                c.prior,
                "x".join(map(str, c.size)),
                f"{c.tiles}",
                f"{c.flops / 1e9:.3g}",
                f"{c.flops / c.pixels / 1e3:.3g}",
                f"{c.seconds / c.pixels * 1e6:.3g}",
                f"{c.flops * work / 1e12:.3g}",
                f"{c.seconds * work:,.1f}",
            )
        )
    header = (
        "prior", "image", "tiles", "GFLOP a step", "kFLOP a pixel and step", "µs a pixel and step",
        f"TFLOP, {k} sources in {steps} steps", "seconds",
    )  # fmt: skip
    return Table(header, rows)
