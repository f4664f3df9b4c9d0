"""Class-split pairs with one prior for both sources, and with one for each."""

from __future__ import annotations

from torch import Tensor

from basis import mixings
from basis._errors import BasisError
from basis._figures import Table
from basis.reproduce._context import Context
from basis.reproduce._definition import TableDefinition
from basis.reproduce._feature_distance import distance_cells
from basis.reproduce._own_component import in_order
from basis.reproduce._photo_table import PHOTOS
from basis.reproduce._section import Section, mean_and_error, percentage
from basis.reproduce._separated import separate_sources

_HALVES = {"mnist": ("mnist-low", "mnist-high"), "cifar10": ("cifar10-animals", "cifar10-vehicles")}
"""The priors of the two groups of classes, which are trained from the prior of all."""


def compute(ctx: Context, section: Section) -> None:
    """Separates the same mixtures with one prior and with a prior for each source."""
    rows, gains = [], []
    for kind, names in _HALVES.items():
        photos = kind == "cifar10"
        data = ctx.photos if photos else ctx.data
        both, own = ctx.prior(kind), ctx.all_priors(names)
        if both is None or own is None:
            rows.append((f"{data}: {names[0]} and {names[1]}", "no prior", "", "", "", ""))
            continue
        truth = _pairs(ctx, ctx.count(256), data)
        if truth is None:
            continue
        mixing = mixings.mixture((0.5, 0.5) if photos else (1.0, 1.0), truth.shape[2])
        # As in the tables of class-split pairs, whose cached separations serve here.
        settings = PHOTOS if photos else {"effort": "balanced"}
        psnr = []
        for title, used in (("one prior", both), ("a prior for each", own)):
            done = separate_sources(ctx, used, truth, mixing, **settings)
            section.add_cost(done)
            psnr.append(done.psnr)
            name = f"{data}, {title}"
            cells = distance_cells(ctx, name, done.sources, data) if photos else ("", "")
            order = percentage(in_order(done.sources, truth))
            rows.append((name, mean_and_error(done.psnr), order, *cells, f"{len(truth):,}"))
        gain = mean_and_error(psnr[1] - psnr[0])
        gains.append(f"A prior for each changes PSNR on {data} by {gain} dB, mixture by mixture.")
    header = ("pairs", "PSNR, dB", "sources in order", "distance", "class score", "mixtures")
    section.tables.append(Table(header, rows))
    section.text.append(
        "The same class-split mixtures. PSNR is by the better order; “sources in order” is the "
        "share of mixtures in which the sources come out in the order they were put in, for which "
        "one prior can only guess: half. " + " ".join(gains)
    )


def _pairs(ctx: Context, count: int, data: str) -> Tensor | None:
    """Class-split sources, or None where the data are missing or have no classes."""
    try:
        return ctx.pairs(count, protocol="split", data=data).sources
    except BasisError:
        return None


TABLE = TableDefinition("class-priors", "A prior for each half of the classes", compute, order=70)
