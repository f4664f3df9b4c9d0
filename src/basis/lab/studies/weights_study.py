"""How well unknown weights, and unknown numbers of sources, are estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basis import metrics
from basis.plots.charts import Table
from basis.result import Result


@dataclass(frozen=True)
class WeightErrors:
    """Unknown weights of pairs against the true ones.

    Attributes:
        count: Pairs.
        median, ninth: Median and 90 % quantile of the larger error of a pair's two weights.
        unknown, known: Mean PSNR in dB with estimated and with true weights.
        unknown_median, known_median: Their medians.
    """

    count: int
    median: float
    ninth: float
    unknown: float
    known: float
    unknown_median: float
    known_median: float


def random_weights(count: int, *, seed: int = 0) -> Tensor:
    """Weights of pairs, (count, 2): one uniform in 0.25 to 0.75, both with sum 1."""
    one = 0.25 + 0.5 * torch.rand(count, generator=torch.Generator().manual_seed(seed))
    return torch.stack([one, 1 - one], dim=1).double()


def weight_errors(truth: Tensor, alphas: Tensor, unknown: Result, known: Result) -> WeightErrors:
    """Compares estimated weights and sources with the true ones, in the best order of sources.

    Args:
        truth: Sources in [0, 1], (count, 2, channels, *size).
        alphas: (count, 2), the true weights.
        unknown, known: Results without and with the true weights.
    """
    assert unknown.alphas is not None
    found, true = unknown.alphas.sort(dim=1).values, alphas.sort(dim=1).values
    off = (found - true).abs().amax(dim=1)
    blind, told = (
        metrics.psnr(unknown.sources, truth, permute=True),
        metrics.psnr(known.sources, truth, permute=True),
    )
    return WeightErrors(
        len(truth),
        off.median().item(),
        off.quantile(0.9).item(),
        blind.mean().item(),
        told.mean().item(),
        blind.median().item(),
        told.median().item(),
    )


def weights_table(found: WeightErrors) -> Table:
    """The study of weights as a table."""
    rows = [
        ("median error of a weight", f"{found.median:.4f}"),
        ("90 % quantile of it", f"{found.ninth:.4f}"),
        (
            "PSNR, weights estimated (median), dB",
            f"{found.unknown:.2f} ({found.unknown_median:.2f})",
        ),
        ("PSNR, weights known (median), dB", f"{found.known:.2f} ({found.known_median:.2f})"),
    ]
    return Table((f"{found.count} pairs", ""), rows)


def counts_table(found: Sequence[tuple[int, Tensor]]) -> Table:
    """True numbers of sources against those found.

    Args:
        found: True number, and the numbers found for its mixtures, (count,).
    """
    rows = []
    for true, counts in found:
        shares = [f"{(counts == k).double().mean().item():.0%}" for k in range(1, 5)]
        rows.append((str(true), str(len(counts)), *shares))
    return Table(("sources", "mixtures", "found 1", "2", "3", "4"), rows)
