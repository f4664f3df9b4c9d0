"""Baselines, fitted once and measured on the mixtures of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from basis import metrics
from basis._mix import GROUPS, Protocol
from basis.lab.baseline import FitOptions
from basis.lab.baselines import BASELINES
from basis.lab.context import Context
from basis.lab.result_cache import CachedResult
from basis.signals.datasets import load_images


@dataclass(frozen=True)
class BaselineResult:
    """How a baseline separated the mixtures of a table.

    Attributes:
        title: The baseline's name in a table.
        sources: (count, k, channels, *size).
        psnr: Of each mixture, (count,).
        seconds: Of fit and separation.
        evaluations: Of a prior's network: none.
    """

    title: str
    sources: Tensor
    psnr: Tensor
    seconds: float
    evaluations: int = 0


def baseline_result(
    ctx: Context, name: str, protocol: Protocol, data: str | None = None
) -> BaselineResult:
    """Fits a baseline and separates the test mixtures of a protocol with it."""
    method = BASELINES[name]()
    data = data or ctx.data
    truth = ctx.pairs(ctx.count(method.measured), protocol=protocol, data=data).sources
    # A fit of a twentieth of the effort would be no test of a method: fits shrink by the root.
    size = math.sqrt(min(1.0, ctx.size))

    def compute() -> CachedResult:
        images = load_images(data, "train", root=ctx.root)
        floats = images.floats()
        groups: Sequence[Tensor] = (floats, floats)
        if protocol == "split":
            groups = [images.only(g).floats() for g in GROUPS[data]]
        label = f"training {method.title}"
        options = FitOptions(size, ctx.seed, lambda share: ctx.on_progress(label, share))
        method.fit(groups, options)
        answer = method.separate(truth.sum(dim=1), seed=ctx.seed)
        return CachedResult(
            {"sources": answer.half(), "psnr": metrics.psnr(answer, truth, permute=True)}
        )

    key = {
        "baseline": method,
        "fit": size,
        "protocol": protocol,
        "groups": GROUPS[data] if protocol == "split" else None,
        "data": ctx.data_key(data, "train"),
        "truth": truth,
    }
    result = ctx.cached(f"baseline-{name}", key, compute, ("baselines", "metrics"))
    tensors = result.tensors
    return BaselineResult(method.title, tensors["sources"].float(), tensors["psnr"], result.seconds)
