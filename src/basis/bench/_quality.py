"""How good separations are: PSNR and cost of every effort and sampler on the same mixtures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis._figures import level_line, log_scale, new_figure, save_figure
from basis.checks import value_scale
from basis.pairs import Pairs
from basis.priors import Prior
from basis.samplers import SAMPLERS
from basis.separation import EFFORTS, Progress, separate


@dataclass(frozen=True)
class Way:
    """A way of separating: its name in the table, and the arguments that `separate` gets."""

    name: str
    settings: dict[str, Any]


WAYS: dict[str, Way] = {
    **{name: Way(f"effort {name}", {"effort": name}) for name in EFFORTS},
    **{name: Way(name, {"sampler": name}) for name in SAMPLERS},
}
"""Every named effort and every sampler with its default settings; `basis` is the paper's."""

_ABLATIONS = ("greedy", "noise-conditioned")  # ascents, measured by the paper's ablation alone

DEFAULT_WAYS = tuple(name for name in WAYS if name not in _ABLATIONS)
"""What a bench compares where nothing else is asked for."""


def find_way(name: str) -> Way:
    """A way by its name; a number is an effort of that many evaluations per mixture."""
    if name.isdecimal() and int(name) > 0:
        return Way(f"effort {name}", {"effort": int(name)})
    try:
        return WAYS[name]
    except KeyError as error:
        raise BasisError(
            f"unknown way {name!r}: give some of {', '.join(WAYS)}, or a number of evaluations"
        ) from error


@dataclass(frozen=True)
class Quality:
    """One row of the table: PSNR in dB over the mixtures, and what a mixture cost.

    Attributes:
        way: Name of the way of separating.
        mean, stderr, median: Of PSNR over `count` mixtures.
        evaluations, most: Network evaluations of a mixture: the mean and the largest number.
        seconds: Time per mixture.
        residual: The largest root mean square of m - A x.
        each: PSNR of every mixture.
    """

    way: str
    mean: float
    stderr: float
    median: float
    count: int
    evaluations: float
    most: int
    seconds: float
    residual: float
    each: list[float]


def measure_quality(
    way: Way,
    prior: Prior,
    pairs: Pairs,
    *,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Quality:
    """Separates all mixtures (of equal weights) in one way."""
    alphas = (1.0,) * pairs.sources.shape[1]
    result = separate(
        pairs.mix(alphas), prior, alphas=alphas, seed=seed, progress=progress, **way.settings
    )
    spent, residual = result.spent.double(), result.residual.max().item()
    return quality_of(way.name, result.sources, pairs, prior, spent, result.seconds, residual)


def quality_of(
    name: str,
    sources: Tensor,
    pairs: Pairs,
    prior: Prior | None,
    spent: Tensor,
    seconds: float,
    residual: float,
) -> Quality:
    """The row of a comparison, from what a method found.

    Args:
        name: What the row is called.
        sources: What was found, (batch, k, channels, *size).
        pairs: The mixtures, with their sources.
        prior: The prior whose range of values PSNR is taken on; [0, 1] by default.
        spent: Evaluations of each mixture, (batch,).
        seconds: Of all mixtures together.
        residual: The largest of a mixture.
    """
    scores = score_sources(sources, pairs.sources, prior)
    summary = metrics.summarise(scores)
    return Quality(
        name,
        summary.mean,
        summary.stderr,
        summary.median,
        summary.count,
        spent.double().mean().item(),
        int(spent.max()),
        seconds / summary.count,
        residual,
        scores.tolist(),
    )


def average_quality(pairs: Pairs, prior: Prior | None = None) -> Quality:
    """The row to beat: every source is the mixture divided by the number of sources.

    Args:
        pairs: The mixtures.
        prior: The prior whose range of values PSNR is taken on; [0, 1] by default.
    """
    return quality_of("average", pairs.average(), pairs, prior, torch.zeros(1), 0.0, 0.0)


def score_sources(estimate: Tensor, truth: Tensor, prior: Prior | None) -> Tensor:
    """PSNR per mixture on the range of the prior's values, (batch,)."""
    if prior is None:
        return metrics.psnr(estimate, truth)
    return metrics.psnr(estimate, truth, prior.low, prior.high, peak=value_scale(prior))


def plot_quality(
    rows: Sequence[Quality], path: str | Path, title: str = "", *, times: bool = True
) -> Path:
    """Plots PSNR against evaluations and against time, one point per way."""
    fields = [("evaluations", "network evaluations per mixture")]
    fields += [("seconds", "seconds per mixture")] if times else []
    figure, axes = new_figure(10 if times else 7, 4.4, len(fields), sharey=True)
    shown = [r for r in rows if r.evaluations]
    efforts = sorted((r for r in shown if r.way.startswith("effort")), key=lambda r: r.evaluations)
    for ax, (field, label) in zip(axes, fields, strict=True):
        ax.plot(
            [getattr(r, field) for r in efforts],
            [r.mean for r in efforts],
            color="#c2255c",
            lw=1.2,
            zorder=1,
        )
        for r in shown:
            color = "#c2255c" if r in efforts else "#e8590c" if r.way == "basis" else "#3b5bdb"
            at = getattr(r, field)
            ax.errorbar(at, r.mean, yerr=r.stderr, fmt="o", ms=5, capsize=2, color=color, zorder=2)
            ax.annotate(
                r.way.removeprefix("effort "),
                (at, r.mean),
                textcoords="offset points",
                # Efforts above their line, samplers beside their points: the two may coincide.
                xytext=(-5, 9) if r in efforts else (7, -3),
                ha="right" if r in efforts else "left",
                fontsize=8,
            )
        ax.set(xlabel=label)
        ax.margins(x=0.16)
        log_scale(ax)
    for r in rows:
        if r.way == "average":
            for ax in axes:
                level_line(ax, r.mean, "average of the mixture")
    axes[0].set_ylabel("PSNR, dB (mean ± standard error)")
    figure.suptitle(title, fontsize=10)
    return save_figure(figure, path)
