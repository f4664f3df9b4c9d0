"""The norm of a prior's gradient over the noise levels, on which the paper's step sizes rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from basis._check import value_scale
from basis.plots.charts import COLORS, Table, level_line, new_figure, save_figure
from basis.priors.prior import Prior
from basis.samplers.sampler import geometric


def paper_sigmas() -> list[float]:
    """The paper's ten noise levels for pictures in [0, 1], largest first."""
    return [10 ** (-2 * i / 9) for i in range(10)]


def study_sigmas(prior: Prior) -> list[float]:
    """The paper's levels in units of the prior's values, within the levels that it answers for."""
    scale = value_scale(prior)
    if scale == 1 and prior.sigma_min <= 0.01 and prior.sigma_max >= 1:
        return paper_sigmas()
    first, last = min(scale, prior.sigma_max), max(0.01 * scale, prior.sigma_min)
    return geometric(max(first, last), last, 10)


@dataclass(frozen=True)
class Gradient:
    """sigma |grad log p_sigma(x + sigma n)|, in expectation over signals and noise.

    For a prior that is sure of every value this is the norm of the noise itself, the square root
    of the number of values (`noise`); it falls below as far as the noise cannot be told from the
    signal.
    """

    sigma: float
    mean: float
    stderr: float
    noise: float


def gradient_norms(
    prior: Prior, signals: Tensor, sigmas: Sequence[float] | None = None, *, seed: int = 0
) -> list[Gradient]:
    """The gradient study of the paper's section on the choice of steps.

    Args:
        prior: Any prior.
        signals: Signals of its kind, (n, *prior.shape).
        sigmas: Noise levels; those of `study_sigmas` by default.
        seed: Seed of the noise.
    """
    prior.check_signals(signals)
    rows = []
    for sigma in sigmas or study_sigmas(prior):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(signals.shape, generator=generator).to(signals)
        with torch.no_grad():
            norms = sigma * prior.score(signals + sigma * noise, sigma).flatten(1).norm(dim=1)
        spread = norms.std().item() if len(norms) > 1 else math.nan
        rows.append(
            Gradient(
                sigma,
                norms.mean().item(),
                spread / math.sqrt(len(norms)),
                math.sqrt(signals[0].numel()),
            )
        )
    return rows


def gradient_table(curves: Mapping[str, Sequence[Gradient]]) -> Table:
    """The gradient study as a table, one column per prior."""
    rows = [
        (f"{level[0].sigma:.4g}", *(f"{g.mean:.2f} ± {g.stderr:.2f}" for g in level))
        for level in zip(*curves.values(), strict=True)
    ]
    return Table(("σ", *curves), rows)


def plot_gradients(curves: Mapping[str, Sequence[Gradient]], path: str | Path) -> Path:
    """The gradient study as a figure, one curve per prior."""
    figure, (axes,) = new_figure(6, 4)
    for (name, rows), color in zip(curves.items(), COLORS * 9, strict=False):
        sigmas = [r.sigma for r in rows]
        axes.plot(sigmas, [r.mean for r in rows], "o-", ms=4, lw=1.3, color=color, label=name)
    level_line(axes, next(iter(curves.values()))[0].noise, "the noise itself")
    axes.set(
        xscale="log", xlabel="σ", ylabel="σ |∇ log p$_σ$(x + σn)|, mean over images", ylim=(0, None)
    )
    axes.margins(y=0.1)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    return save_figure(figure, path)
