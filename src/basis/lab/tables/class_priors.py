"""Class-split pairs with a prior that is told nothing, and with one that is told the classes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from basis import metrics, mixings
from basis._mix import GROUPS
from basis.errors import BasisError
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.feature_distance import NETWORK, distances
from basis.lab.own_component import in_order
from basis.lab.section import Section, mean_and_error, percentage
from basis.lab.separated import separate_sources
from basis.plots.charts import Table

_PRIORS = {"mnist": "mnist-classes", "cifar10": "cifar10"}
"""Priors that can be told which group of classes a source is of."""
_SETTINGS: dict[str, dict[str, Any]] = {
    "mnist": {"effort": "balanced"},
    "cifar10": {"effort": "balanced", "choose": "mean"},
}
"""How the mixtures of each are separated: what photos leave open is broad."""
_HEADER = (
    "pairs", "PSNR, dB", "sources in order", "distance", "kernel distance", "class score",
    "mixtures",
)  # fmt: skip


def compute(ctx: Context, section: Section) -> None:
    """Separates the same mixtures with one prior and with a prior for each source."""
    rows, gains = [], []
    for kind, name in _PRIORS.items():
        photos = kind == "cifar10"
        data = ctx.photos if photos else ctx.data
        both = ctx.prior(name)
        if both is None or not both.classes:
            rows.append((f"{data}: {name}", "no prior", *("",) * (len(_HEADER) - 2)))
            continue
        truth = _pairs(ctx, ctx.count(256), data)
        if truth is None:
            continue
        own = [both.condition(*group) for group in GROUPS[data]]
        mixing = mixings.mixture((0.5, 0.5) if photos else (1.0, 1.0), truth.shape[2])
        settings = _SETTINGS[kind]
        average = mixings.mixture((0.5, 0.5), truth.shape[2])(truth)[:, None].expand_as(truth)
        plain = metrics.psnr(average, truth, permute=True)
        psnr = []
        for title, used in (("told nothing", both), ("told the classes", own)):
            done = separate_sources(ctx, used, truth, mixing, **settings)
            section.add_cost(done)
            psnr.append(done.psnr)
            row = f"{data}, {title}"
            cells = _distance_cells(ctx, row, done.sources, data) if photos else ("", "", "")
            order = percentage(in_order(done.sources, truth))
            rows.append((row, mean_and_error(done.psnr), order, *cells, f"{len(truth):,}"))
        over = [mean_and_error(p - plain) for p in psnr]
        gains.append(
            f"On {data} a prior that is told nothing gains {over[0]} dB over Average, and one that "
            f"is told which classes each source is of {over[1]} dB; the difference of the two is "
            f"{mean_and_error(psnr[1] - psnr[0])} dB."
        )
    section.tables.append(Table(_HEADER, rows))
    section.text.append(
        "The same class-split mixtures. PSNR is by the better order; “sources in order” is the "
        "share of mixtures in which the sources come out in the order they were put in, which a "
        "prior that is told nothing can only guess: half. Distances are from the test photos; the "
        "kernel distance is in thousandths. Gains are mixture by mixture: " + " ".join(gains)
    )


def _distance_cells(ctx: Context, name: str, sources: Tensor, data: str) -> tuple[str, str, str]:
    """Distance, kernel distance and class score of sources, as a table shows them."""
    found = distances(ctx, name, sources, data)
    if found is None:
        return (f"{NETWORK} is not installed", "", "")
    return (f"{found.frechet:.3g}", found.kernel_cell(), found.score_cell())


def _pairs(ctx: Context, count: int, data: str) -> Tensor | None:
    """Class-split sources, or None where the data are missing or have no classes."""
    try:
        return ctx.pairs(count, protocol="split", data=data).sources
    except BasisError:
        return None


TABLE = TableDefinition("class-priors", "A prior for each half of the classes", compute, order=70)
