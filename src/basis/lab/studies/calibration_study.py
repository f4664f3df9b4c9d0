"""Are intervals as wide as they should be? Coverage of the truth, and errors beside predicted ones.

With exact priors the truth is a draw of the posterior like any other, so that an interval of 90 %
covers it in 90 % of cases if the sampler is right. With trained priors it shows how far sampler and
prior together can be believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from basis._separate import separate
from basis.mixings.matrix import mixture
from basis.mixings.mixing import Mixing
from basis.plots.charts import COLORS, Table, new_figure, save_figure
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.result import Result
from basis.search.ranking import align

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Nominal levels of the intervals that are measured."""
_BINS = 6  # of predicted deviations
_SIDE = 6  # of the textures that exact posteriors are of


@dataclass(frozen=True)
class Calibration:
    """How well draws tell what is not known.

    Attributes:
        name: Of what.
        mixtures, samples, values: Mixtures, draws of each, and values that were counted.
        covered: Share of the true values in the intervals of `LEVELS`.
        error, predicted: Root mean square of the error of the draws' mean, and of their deviation.
        bins: Predicted deviation and error, over values of like predicted deviation.
    """

    name: str
    mixtures: int
    samples: int
    values: int
    covered: tuple[float, ...]
    error: float
    predicted: float
    bins: tuple[tuple[float, float], ...]


def calibration(
    name: str, truth: Tensor, result: Result, *, least: float = 0.0, tolerance: float = 0.0
) -> Calibration:
    """Compares a result's draws with the true sources.

    Args:
        truth: (batch, k, channels, *size); exchangeable sources are put in the result's order.
        result: With several samples.
        least: Values of a smaller deviation are not counted.
        tolerance: By how much an interval is wider on either side, for values that were rounded.
    """
    truth = align(truth, result.sources, result.exchangeable)
    mean, deviation = result.mean, result.std
    # A mean of n draws errs by the deviation and by its own chance error.
    predicted = deviation * math.sqrt(1 + 1 / result.samples.shape[1])
    counted = deviation >= least
    covered = []
    for level in LEVELS:
        low, high = result.interval(level)
        inside = (truth >= low - tolerance) & (truth <= high + tolerance)
        covered.append(inside[counted].double().mean().item())
    off, wide = (truth - mean)[counted].double(), predicted[counted].double()
    order = wide.argsort()
    bins = [(_rms(wide[part]), _rms(off[part])) for part in order.tensor_split(_BINS) if len(part)]
    return Calibration(
        name,
        len(truth),
        result.samples.shape[1],
        int(counted.sum()),
        tuple(covered),
        _rms(off),
        _rms(wide),
        tuple(bins),
    )


def exact_calibrations(
    count: int, samples: int, *, steps: int = 300, seed: int = 0
) -> list[Calibration]:
    """The calibration of `gibbs` where the prior is exact and the truth drawn from it.

    Gaussian textures, a smooth and a rough one: a prior per source, from an exact and from a noisy
    mixture; and sums of two patterns of three, of one prior.

    Args:
        count: Mixtures of each kind.
        samples: Draws of each.
        steps: Of every draw.
    """
    generator = torch.Generator().manual_seed(seed)
    textures = [_texture(2.0), _texture(0.6)]
    patterns = torch.rand(3, 1, _SIDE, _SIDE, dtype=torch.float64, generator=generator).round()
    own = GaussianMixture(patterns, torch.full((3,), 0.02, dtype=torch.float64))
    kinds: list[tuple[str, list[Prior], Mixing]] = [
        ("two textures", [*textures], mixture((1.0, 1.0))),
        ("two textures, noise 0.3", [*textures], mixture((1.0, 1.0)).replace(noise=0.3)),
        (
            "two patterns of one prior, noise 0.1",
            [own, own],
            mixture((1.0, 0.8)).replace(noise=0.1),
        ),
    ]
    rows = []
    for name, priors, mixing in kinds:
        drawn = [
            p.exact_samples(count, generator) for p in priors if isinstance(p, GaussianMixture)
        ]
        truth = torch.stack(drawn, dim=1)
        noise = torch.randn(count, *priors[0].shape, dtype=torch.float64, generator=generator)
        m = mixing(truth) + mixing.noise * noise
        result = separate(
            m, priors, mixing=mixing, sampler="gibbs", steps=steps, samples=samples, seed=seed
        )
        rows.append(calibration(name, truth, result))
    return rows


def _texture(length: float) -> GaussianMixture:
    """A Gaussian texture whose neighbours are correlated over this length."""
    at = torch.cartesian_prod(*[torch.arange(_SIDE, dtype=torch.float64)] * 2)
    distance = torch.cdist(at, at)
    covariance = (-distance.square() / (2 * length**2)).exp()
    covariance = covariance + 0.05 * torch.eye(_SIDE**2, dtype=torch.float64)
    return GaussianMixture(torch.zeros(1, 1, _SIDE, _SIDE, dtype=torch.float64), covariance[None])


def calibration_table(rows: Sequence[Calibration]) -> Table:
    """Coverage by nominal level, and errors beside predicted ones."""
    head = ("", "mixtures", "draws", *(f"{level:.0%}" for level in LEVELS), "error", "predicted")
    lines = [
        (
            row.name,
            str(row.mixtures),
            str(row.samples),
            *(f"{100 * share:.1f} %" for share in row.covered),
            f"{row.error:.3g}",
            f"{row.predicted:.3g}",
        )
        for row in rows
    ]
    return Table(head, lines)


def plot_calibration(rows: Sequence[Calibration], path: str | Path) -> Path:
    """Coverage against the nominal level, and error against predicted error."""
    figure, (left, right) = new_figure(10, 4, 2)
    left.plot([0.4, 1], [0.4, 1], color="0.7", lw=1)
    for number, row in enumerate(rows):
        # Beyond the colours that there are, lines are dashed.
        color, line = COLORS[number % len(COLORS)], "o-" if number < len(COLORS) else "s--"
        left.plot(LEVELS, row.covered, line, ms=4, lw=1.3, color=color, label=row.name)
        wide, off = zip(*row.bins, strict=True)
        right.plot(wide, off, line, ms=4, lw=1.3, color=color)
    ends = right.get_xlim()
    right.plot(ends, ends, color="0.7", lw=1)
    left.set(xlabel="nominal", ylabel="truth in the interval")
    right.set(xlabel="predicted error", ylabel="error of the mean", xscale="log", yscale="log")
    left.legend(frameon=False, fontsize=8)
    return save_figure(figure, path)


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()
