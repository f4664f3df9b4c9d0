"""Separations of test mixtures, computed batch by batch and kept."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._inputs import make_sampler
from basis._mix import Protocol
from basis._separate import separate
from basis.lab.context import Context
from basis.lab.fingerprint import fingerprint
from basis.lab.result_cache import CachedResult
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.search.plan import Plan, plan_for

BATCH = 32
"""Mixtures in one cached result: what an interruption can cost at most."""
ROOMS = ("separation", "samplers", "mixings", "priors", "nn", "metrics")
"""The rooms whose code separations depend on, with all that they import."""


@dataclass(frozen=True)
class Separated:
    """Mixtures separated in one way.

    Attributes:
        sources: (count, k, channels, *size).
        psnr, spent, residual: Of each mixture, (count,).
        seconds: Of computing.
    """

    sources: Tensor
    psnr: Tensor
    spent: Tensor
    residual: Tensor
    seconds: float

    @property
    def evaluations(self) -> int:
        """Network evaluations in all."""
        return int(self.spent.sum())


@dataclass(frozen=True)
class Draws:
    """Several draws from the posterior of each mixture: (count, draws, k, channels, *size)."""

    samples: Tensor
    evaluations: int
    seconds: float


def run_key(settings: dict[str, Any], sources: int) -> Any:
    """What `separate` runs with these settings, in full: every field of the sampler or the plan."""
    own = inspect.signature(separate).parameters
    if "sampler" in settings:
        options = {name: value for name, value in settings.items() if name not in own}
        resolved: Any = make_sampler(settings["sampler"], **options)
    else:
        effort = settings.get("effort")
        choose = settings.get("choose")
        resolved = effort if isinstance(effort, Plan) else plan_for(effort, sources, choose=choose)
    return {"settings": settings, "resolved": fingerprint(resolved)}


def separation_key(
    ctx: Context,
    prior: Prior | Sequence[Prior],
    truth: Tensor,
    mixing: Mixing,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Everything that a separation of mixtures of `truth` depends on but the code of its rooms."""
    return {
        "prior": ctx.prior_key(prior),
        "samplers": ctx.sampler_key(),
        "run": run_key(settings, truth.shape[1]),
        "mixing": mixing.describe(),
        "truth": truth,
        "observed": mixing(truth),
    }


def separate_pairs(
    ctx: Context,
    prior: Prior,
    count: int,
    *,
    k: int = 2,
    protocol: Protocol = "agnostic",
    data: str | None = None,
    **settings: Any,
) -> Separated:
    """Separates the first `count` test mixtures, of weight 1 each."""
    sources = ctx.pairs(count, k=k, protocol=protocol, data=data).sources
    mixing = mixings.mixture((1.0,) * k, sources.shape[2])
    return separate_sources(ctx, prior, sources, mixing, **settings)


def separate_sources(
    ctx: Context,
    prior: Prior | Sequence[Prior],
    sources: Tensor,
    mixing: Mixing,
    **settings: Any,
) -> Separated:
    """Mixes sources, (count, k, channels, *size), and separates them again.

    Args:
        ctx: Seed and cache.
        prior: One for all sources, or one per source.
        sources: What is mixed.
        mixing: How.
        settings: What `separate` gets.
    """
    settings = ctx.schedule(settings)
    label, count = _label(prior, settings), len(sources)
    results = []
    for first in range(0, count, BATCH):
        truth = sources[first : first + BATCH]

        def compute(truth: Tensor = truth, first: int = first) -> CachedResult:
            def progress(p: Progress) -> None:
                ctx.on_progress(label, (first + len(truth) * p.done / p.total) / count)

            result = separate(
                mixing(truth), prior, mixing=mixing, seed=ctx.seed, progress=progress, **settings
            )
            tensors = {
                "sources": result.sources.half(),
                "psnr": metrics.psnr(result.sources, truth, permute=True),
                "spent": result.spent,
                "residual": result.residual,
            }
            return CachedResult(tensors)

        key = separation_key(ctx, prior, truth, mixing, settings)
        results.append(ctx.cached("separated", key, compute, ROOMS))

    def joined(name: str) -> Tensor:
        return torch.cat([r.tensors[name] for r in results])

    return Separated(
        joined("sources").float(),
        joined("psnr"),
        joined("spent"),
        joined("residual"),
        sum(r.seconds for r in results),
    )


def posterior_draws(
    ctx: Context,
    prior: Prior,
    truth: Tensor,
    mixing: Mixing,
    draws: int,
    label: str,
    **settings: Any,
) -> Draws:
    """Several draws from the posterior of each mixture, by split Gibbs unless told otherwise."""
    settings = ctx.schedule(settings or {"sampler": "gibbs"})

    def compute() -> CachedResult:
        result = separate(
            mixing(truth), prior, mixing=mixing, samples=draws, seed=ctx.seed, **settings,
            progress=lambda p: ctx.on_progress(label, p.done / p.total),
        )  # fmt: skip
        spent = {"evaluations": int(result.spent.sum())}
        return CachedResult({"samples": result.samples.half()}, spent)

    key = separation_key(ctx, prior, truth, mixing, settings) | {"draws": draws}
    result = ctx.cached("draws", key, compute, ROOMS)
    return Draws(result.tensors["samples"].float(), result.values["evaluations"], result.seconds)


def _label(prior: Prior | Sequence[Prior], settings: dict[str, Any]) -> str:
    """What a progress bar says of a separation."""
    names = [prior.name] if isinstance(prior, Prior) else [p.name for p in prior]
    return " ".join([*names, *(f"{k}={v}" for k, v in settings.items())])
