"""Photos that look like photos: one draw of every mixture, at the paper's number of images."""

from __future__ import annotations

from typing import Any

from basis import mixings
from basis.pairs import Protocol
from basis.reproduce._context import Context
from basis.reproduce._definition import TableDefinition
from basis.reproduce._photo_rows import NOTE, PhotoRows
from basis.reproduce._photo_table import MOST, PAPER, has_photos
from basis.reproduce._section import Section
from basis.reproduce._separated import separate_sources

_LOOKS: dict[str, Any] = {"effort": 100, "choose": "draw"}
"""How photos are separated: as much like photos as a mean of six times the evaluations."""
_PROTOCOLS: dict[Protocol, str] = {"agnostic": "any two photos", "split": "animals with vehicles"}


def compute(ctx: Context, section: Section) -> None:
    """Draws sources of mixtures of both protocols."""
    if not has_photos(ctx, section):
        return
    prior = ctx.need("cifar10")
    for protocol, title in _PROTOCOLS.items():
        count = ctx.count(1024, most=MOST)
        truth = ctx.pairs(count, protocol=protocol, data=ctx.photos).sources
        mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
        average = mixing(truth)[:, None].expand_as(truth)
        rows = PhotoRows(ctx, ("Average", average), truth, PAPER[protocol]["plain"])
        done = separate_sources(ctx, prior, truth, mixing, **_LOOKS)
        section.add_cost(done)
        rows.add(f"one draw of each, {title}", done.sources, PAPER[protocol]["cifar10"])
        section.tables.append(rows.table())
        shown = min(8, count)
        section.add_panel(
            f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing,
            title=f"the first {shown}, {title}",
        )  # fmt: skip
    section.text.append(NOTE.format(plain="Average", what="sources of the mixtures"))
    section.settings = {"data": ctx.photos, **_LOOKS}


TABLE = TableDefinition("photo-draws", "Photos, one draw of each", compute, order=54)
