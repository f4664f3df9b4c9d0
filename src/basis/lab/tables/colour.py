"""Grey photos coloured again: distances, and several colourings of the same."""

from __future__ import annotations

import torch
from torch import Tensor

from basis import mixings, plots
from basis._colorize import colouring, lay_colours
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.photo_rows import PhotoRows
from basis.lab.photo_table import PAPER, has_photos, prior_rows
from basis.lab.section import Section, png
from basis.lab.separated import posterior_draws
from basis.signals.datasets import load_images

_VIVID = 1.15  # how many times as strong as drawn; chosen on the first 512 test photos


def compute(ctx: Context, section: Section) -> None:
    """Colours grey photos, and measures how far the result is from photos."""
    if not has_photos(ctx, section):
        return
    images = load_images(ctx.photos, "test", root=ctx.root)
    count = min(ctx.count(1024, most=10_000), len(images))
    truth = images.floats(torch.arange(count))[:, None]
    mixing = mixings.grey(channels=truth.shape[2])
    grey = mixing(truth)[:, None].expand_as(truth)
    rows = PhotoRows(ctx, ("the grey photos", grey), truth, PAPER["grey"]["plain"])

    def vivid(drawn: Tensor) -> dict[str, Tensor]:
        seen = grey[: len(drawn), :, :1]
        return {f"colours x {_VIVID}": lay_colours(seen, _VIVID * (drawn - seen))}

    used = prior_rows(ctx, section, rows, mixing, PAPER["grey"], colouring, "photos", vivid)
    shown = min(4, len(truth))
    for prior, title in used:
        many = posterior_draws(
            ctx, prior, truth[:shown], mixing, 5, "colourings", **colouring(prior)
        )
        section.add_cost(many)
        columns = torch.cat([grey[:shown], many.samples[:, :, 0], truth[:shown]], dim=1)
        titles = ["grey", *(f"{i + 1}" for i in range(many.samples.shape[1])), "as it was"]
        picture = plots.pictures_panel(columns, titles, title=f"five colourings of each, {title}")
        section.pictures.append((f"Several colourings, {title}", png(picture)))
    section.settings = {"data": ctx.photos}


TABLE = TableDefinition("colour", "Colourisation", compute, order=60)
