"""Photos that look like photos: one draw of every mixture, at the paper's number of images."""

from __future__ import annotations

from typing import Any

from basis._mix import Protocol
from basis.lab.context import Context
from basis.lab.photo_rows import NOTE
from basis.lab.photo_table import PAPER, has_photos, mixed_photos
from basis.lab.section import Section
from basis.lab.separated import separate_sources

LOOKS: dict[str, Any] = {"effort": 200, "choose": "draw"}
"""How photos are separated: so cheap that all test photos can be."""
FINER = 0.5
"""The longest waves that are led away from those of a weaker prior, as a share of the side."""


def draws_table(ctx: Context, section: Section, protocol: Protocol) -> None:
    """Fills a section with distances of one draw of every mixture, beside “Average” on the same."""
    if not has_photos(ctx, section):
        return
    rows, mixing = mixed_photos(ctx, protocol)
    truth = rows.truth
    prior, weaker = ctx.need("cifar10"), ctx.prior("cifar10-small")
    led = prior if weaker is None else prior.autoguide(weaker, finer=FINER)
    done = separate_sources(ctx, led, truth, mixing, **LOOKS)
    section.add_cost(done)
    rows.add("ours, one draw of each", done.sources, PAPER[protocol]["cifar10"])
    section.tables.append(rows.table())
    section.text.append(NOTE.format(plain="Average", what="sources of the mixtures"))
    shown = min(8, len(truth))
    section.add_panel(
        "Uncurated draws", truth[:shown], done.sources[:shown], mixing,
        title=f"the first {shown}, one draw of each",
    )  # fmt: skip
    section.settings = {"data": ctx.photos, "protocol": protocol, **LOOKS}
    if weaker is not None:
        section.settings["away"] = weaker.name
