"""One prior per source: priors conditioned on classes, and churches mixed with bedrooms."""

from __future__ import annotations

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._mix import GROUPS
from basis.errors import BasisError
from basis.lab.context import Context
from basis.lab.distances import distances
from basis.lab.report import Section, mean_and_error, percentage
from basis.lab.tables.photos import PHOTOS
from basis.plots.charts import Table
from basis.signals.datasets import load_images

SCENES = ("church", "bedroom")
SIDE = 64
"""Pixels that photos of scenes are scaled to."""


def in_order(estimate: Tensor, truth: Tensor) -> Tensor:
    """Which mixtures have their two sources closer to the truth in this order than swapped."""
    same = (estimate - truth).square().flatten(1).sum(dim=1)
    swapped = (estimate.flip(1) - truth).square().flatten(1).sum(dim=1)
    return same < swapped


def class_priors(ctx: Context, section: Section) -> None:
    """The same class-split mixtures with an unconditional prior and with one prior per source."""
    rows: list[tuple[str, ...]] = []
    gains = []
    header = (
        "pairs", "PSNR, dB", "sources in order", "distance", "kernel distance", "class score",
        "mixtures",
    )  # fmt: skip
    for name, data, alphas, settings in (
        ("mnist-classes", ctx.data, (1.0, 1.0), {"method": "balanced"}),
        ("cifar10", ctx.photos, (0.5, 0.5), PHOTOS),
    ):
        prior = ctx.prior(name)
        if prior is None or not prior.classes:
            rows.append((f"{data}: {name}", "no prior", *("",) * (len(header) - 2)))
            continue
        try:
            truth = ctx.pairs(ctx.count(256), protocol="split", data=data).sources
        except BasisError:
            continue  # no data, or no classes
        conditional = [prior.condition(*group) for group in GROUPS[data]]
        mixing = mixings.mixture(alphas, truth.shape[2])
        trivial = metrics.psnr(
            truth.mean(dim=1, keepdim=True).expand_as(truth), truth, permute=True
        )
        psnr = []
        for title, used in (("unconditional", prior), ("conditioned on the classes", conditional)):
            done = ctx.separate(used, truth, mixing, **settings)
            section.add_cost(done)
            psnr.append(done.psnr)
            found = None
            if name == "cifar10":
                found = distances(ctx, f"{data}, {title}", done.sources, data)
            cells = ("", "", "")
            if found is not None:
                cells = (f"{found.frechet:.3g}", found.kernel_cell(), found.score_cell())
            order = percentage(in_order(done.sources, truth))
            quality = (f"{data}, {title}", mean_and_error(done.psnr), order)
            rows.append((*quality, *cells, f"{len(truth):,}"))
        over = [mean_and_error(p - trivial) for p in psnr]
        gains.append(
            f"On {data} the unconditional prior gains {over[0]} dB over mixture / 2, the priors "
            f"conditioned on the classes {over[1]} dB; the difference is "
            f"{mean_and_error(psnr[1] - psnr[0])} dB."
        )
    section.tables.append(Table(header, rows))
    section.text.append(
        "PSNR is by the better order; “sources in order” is the fraction of mixtures whose sources "
        "come out in their true order, which is half by chance for the unconditional prior. "
        "Distances are from the test photos; the kernel distance is in thousandths. Gains are "
        "mixture by mixture: " + " ".join(gains)
    )


def scenes(ctx: Context, section: Section) -> None:
    """Churches mixed with bedrooms: quality, and which source is in which component."""
    try:
        photos = [scene_photos(ctx, name) for name in SCENES]
    except BasisError as error:
        section.text.append(f"no data: {error}")
        return
    priors = [ctx.need(name) for name in SCENES]
    count = min(ctx.count(60), *map(len, photos))
    truth = torch.stack([p[:count] for p in photos], dim=1)
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    average = mixing(truth)[:, None].expand_as(truth)
    done = ctx.separate(priors, truth, mixing, **PHOTOS)
    section.add_cost(done)
    trivial = mean_and_error(metrics.psnr(average, truth, permute=True))
    order = percentage(in_order(done.sources, truth))
    rows = [("mixture / 2", trivial, "", f"{count}")]
    rows.append(("score networks", mean_and_error(done.psnr), order, f"{count}"))
    header = ("priors", "PSNR, dB", "closer to its own photo", "mixtures")
    section.tables.append(Table(header, rows))
    shown = min(6, count)
    section.add_panel(
        "Uncurated", truth[:shown], done.sources[:shown], mixing,
        title=f"the first {shown} mixtures", cell=112,
    )  # fmt: skip
    section.text.append(
        "The first prior gives the church and the second the bedroom. “Closer to its own photo”: "
        "the fraction of mixtures whose sources are in their own component, without permutation."
    )


def scene_photos(ctx: Context, name: str) -> Tensor:
    """Photos of one kind in [0, 1]; half of the digits if the context has only the sample."""
    if ctx.data == "sample":
        images = load_images("sample").only(GROUPS["sample"][SCENES.index(name)])
    else:
        images = load_images(f"scenes/{name}", "test", root=ctx.root, size=SIDE, channels=3)
    return images.floats(slice(ctx.count(1000, at_least=24)))
