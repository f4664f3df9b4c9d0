"""Baselines, fitted once and measured on the mixtures of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from basis import metrics
from basis.baselines import BASELINES, Job
from basis.data import load_images
from basis.pairs import GROUPS
from basis.reproduce._pieces import Workshop
from basis.reproduce._shards import Shard


@dataclass(frozen=True)
class Answered:
    """What a baseline answered: sources (count, k, channels, height, width), PSNR of each mixture, seconds of fit and all."""

    title: str
    sources: Tensor
    psnr: Tensor
    seconds: float


def baseline(shop: Workshop, name: str, protocol: str, data: str | None = None) -> Answered:
    """A baseline's answers to the mixtures of a protocol."""
    method = BASELINES[name]()
    data = data or shop.data
    count = shop.count(method.measured)

    def make() -> Shard:
        images = load_images(data, "train", root=shop.root)
        floats = images.images.float().div(255)
        groups: Sequence[Tensor] = (floats, floats)
        if protocol == "split":
            groups = [images.only(g).images.float().div(255) for g in GROUPS[data]]
        # A fit of a twentieth of the effort would say nothing of a method: fits shrink by the square root.
        effort = math.sqrt(shop.size)
        method.fit(
            groups,
            Job(effort, shop.seed, lambda share: shop.tell(f"training {method.title}", share)),
        )
        truth = shop.pairs(count, protocol=protocol, data=data).sources
        answer = method.separate(truth.sum(dim=1), seed=shop.seed)
        return Shard({"sources": answer.half(), "psnr": metrics.psnr(answer, truth)})

    about = {
        "baseline": name, "protocol": protocol, "count": count, "size": shop.size,
        "seed": shop.seed, "data": data,
    }  # fmt: skip
    shard = shop.shards.get(f"baseline-{name}", about, make)
    tensors = shard.tensors
    return Answered(method.title, tensors["sources"].float(), tensors["psnr"], shard.seconds)
