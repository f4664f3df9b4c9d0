"""Distances of separated and of coloured photos: what the tables on CIFAR-10 share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings, plots
from basis._mix import Protocol
from basis.errors import BasisError
from basis.lab.baseline_results import baseline_result
from basis.lab.context import Context
from basis.lab.photo_rows import NOTE, PhotoRows
from basis.lab.section import Section, mean_and_error, png
from basis.lab.separated import posterior_draws, separate_sources
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table
from basis.priors.prior import Prior
from basis.signals.datasets import load_images

PAPER: dict[str, dict[str, str]] = {
    "split": {"plain": "FID 39.5", "cifar10": "FID 29.9, ratio 0.76"},
    "agnostic": {"plain": "FID 28.0", "cifar10": "FID 22.1, ratio 0.79"},
    "grey": {"plain": "FID 68.5", "cifar10": "FID 11.6, ratio 0.17"},
}
"""What the paper prints, and the ratio to its row without a prior; shown beside ours and never as
ours.
"""

PHOTOS: dict[str, Any] = {"effort": "balanced", "choose": "mean"}
"""How photos are separated: their explanations are broad, and a mean is nearer than any one."""

MOST = 5000
"""Mixtures of the largest version: as many sources as CIFAR-10 has test photos."""

_PRIORS = (("cifar10", "score network", 1024, 10_000), ("cifar10-glow", "Glow", 256, 256))
"""Names, titles, and mixtures of the full and at most of the largest version: a flow's gradient
costs more than a score.
"""


def photo_table(ctx: Context, section: Section, protocol: Protocol) -> None:
    """Fills a section with distances of separated photos, beside "Average" on the same mixtures."""
    if not has_photos(ctx, section):
        return
    data = ctx.photos
    rows, mixing = mixed_photos(ctx, protocol)
    if protocol == "split":
        other = baseline_result(ctx, "nes", protocol, data)
        section.add_cost(other)
        rows.add(other.title, other.sources)
    used = prior_rows(
        ctx, section, rows, mixing, PAPER[protocol], lambda p: PHOTOS, "sources of the mixtures"
    )
    for prior, title in used[:1]:
        _draws_table(ctx, section, prior, title, rows.truth[: ctx.count(32)], mixing)
    section.settings = {"data": data, "protocol": protocol}


def mixed_photos(ctx: Context, protocol: Protocol) -> tuple[PhotoRows, Mixing]:
    """Test photos in pairs as the rows of a table, beside “Average”, and how they are mixed."""
    truth = ctx.pairs(ctx.count(1024, most=MOST), protocol=protocol, data=ctx.photos).sources
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    average = mixing(truth)[:, None].expand_as(truth)
    return PhotoRows(ctx, ("Average", average), truth, PAPER[protocol]["plain"]), mixing


def _draws_table(
    ctx: Context, section: Section, prior: Prior, title: str, truth: Tensor, mixing: Mixing
) -> None:
    """Adds several draws of each mixture: how far they differ, and how good their mean is."""
    count, draws = len(truth), 8
    drawn = posterior_draws(ctx, prior, truth, mixing, draws, f"{section.name}, draws")
    section.add_cost(drawn)
    first = drawn.samples[:, 0]
    many = torch.stack([metrics.reorder(d, first) for d in drawn.samples.unbind(1)], dim=1)
    each = torch.stack([metrics.psnr(d, truth, permute=True) for d in many.unbind(1)])
    mean = metrics.psnr(many.mean(dim=1), truth, permute=True)
    rows = [
        ("one draw", mean_and_error(each.mean(dim=0)), f"{count}"),
        (f"the mean of {draws}", mean_and_error(mean), f"{count}"),
        (f"the nearest of {draws} to the truth", mean_and_error(each.amax(dim=0)), f"{count}"),
    ]
    header = ("draws from the posterior (gibbs)", "PSNR, dB", "mixtures")
    section.tables.append(Table(header, rows))
    spread = metrics.rms(many - many.mean(dim=1, keepdim=True)).mean().item()
    section.text.append(
        f"{draws} draws of one mixture differ from their mean by {spread:.3f} rms; all of them add "
        "up to the mixture."
    )
    shown, seen = min(4, count), 4
    columns = [mixing(truth)[:shown, None], *many[:shown, :seen].unbind(1), truth[:shown]]
    titles = ["mixture", *(w for i in range(seen) for w in (f"draw {i + 1}", "")), "truth", ""]
    picture = plots.pictures_panel(
        torch.cat(columns, dim=1), titles, title=f"{seen} draws of each, {title}", cell=84
    )
    section.pictures.append((f"Several separations of one mixture, {title}", png(picture)))


def prior_rows(
    ctx: Context,
    section: Section,
    rows: PhotoRows,
    mixing: Mixing,
    printed: dict[str, str],
    settings: Callable[[Prior], dict[str, Any]],
    what: str,
    others: Callable[[Tensor], dict[str, Tensor]] | None = None,
) -> list[tuple[Prior, str]]:
    """Adds the table and pictures of every prior of photos, each beside what needs no prior.

    Args:
        ctx: Priors and cache.
        section: What is filled.
        rows: The rows of the table, of which some may be there already.
        mixing: How the sources of the rows are mixed.
        printed: The paper's figures.
        settings: What `separate` gets for a prior.
        what: What the note calls the true sources.
        others: Rows that are made of a prior's sources without another separation, by what their
            titles add.

    Returns:
        The priors that exist, with their titles.
    """
    used, residual = [], 0.0
    for name, title, full, most in _PRIORS:
        count = min(ctx.count(full, most=most), len(rows.truth))
        prior, value = ctx.prior(name), printed.get(name, "")
        if prior is None:
            rows.add_missing(f"ours, {title}", count, value)
            continue
        used.append((prior, title))
        truth = rows.truth[:count]
        done = separate_sources(ctx, prior, truth, mixing, **settings(prior))
        section.add_cost(done)
        residual = max(residual, done.residual.max().item())
        rows.add(f"ours, {title}", done.sources, value)
        for added, sources in (others(done.sources) if others else {}).items():
            rows.add(f"ours, {title}, {added}", sources, value)
        shown = min(8, count)
        section.add_panel(
            f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing,
            title=f"the first {shown}, {title}",
        )  # fmt: skip
    section.tables.append(rows.table())
    steps = 255 * float(residual)
    section.text.append(
        f"{NOTE.format(plain=rows.plain[0], what=what)} The largest residual of any mixture is "
        f"{steps:.2f} of an 8-bit step."
    )
    return used


def has_photos(ctx: Context, section: Section) -> bool:
    """Whether the set of photos is there; a section says so where it is not."""
    try:
        load_images(ctx.photos, "test", root=ctx.root)
    except BasisError as error:
        section.text.append(f"no data: {error}")
        return False
    return True
