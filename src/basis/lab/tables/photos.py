"""Distances of separated and colorized photos from the test photos of CIFAR-10."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings, plots
from basis._colorize import add_colors, color_sampler
from basis._mix import Protocol
from basis.errors import BasisError
from basis.lab.baselines import baseline_result
from basis.lab.context import Context, describe_settings
from basis.lab.distances import NETWORK, Distances, distances
from basis.lab.report import Section, mean_and_error
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table
from basis.priors.prior import Prior
from basis.signals.datasets import load_images

PAPER: dict[str, dict[str, str]] = {
    "split": {"trivial": "FID 39.5", "cifar10": "FID 29.9, ratio 0.76"},
    "agnostic": {"trivial": "FID 28.0", "cifar10": "FID 22.1, ratio 0.79"},
    "grey": {"trivial": "FID 68.5", "cifar10": "FID 11.6, ratio 0.17"},
}
"""The paper's figures and their ratio to its trivial baseline, for the column "paper" only."""

PHOTOS: dict[str, Any] = {"method": "balanced", "estimate": "mean"}
"""How photos are separated for PSNR: their posteriors are broad, and the mean is closest."""
SAMPLE: dict[str, Any] = {"method": 200, "estimate": "sample"}
"""How photos are separated for distances: few evaluations, so that all test photos can be."""
VIVID = 1.15
"""Factor of colors in the table of colorization; chosen on the first 512 test photos."""

_LARGEST = 5000  # mixtures of the largest version: as many sources as CIFAR-10 has test photos

_NOTE = (
    "The distance is the Fréchet distance between Gaussians fitted to the features of "
    "EfficientNet-Lite0; the paper's FID is the same with another network, so that ratios can be "
    "compared and values cannot. It falls with the number of images: compare rows of one number. "
    "The ratio is to “{trivial}” of the same number, which needs no prior; “progress” is the "
    "fraction of the way from there to “test photos”, the true sources, which are among the test "
    "photos that all are compared with. The kernel distance (in thousandths) is unbiased: it does "
    "not fall with the number of images. “Gain” is in PSNR over “{trivial}”, mixture by mixture."
)
_HEADER = (
    "method", "distance", "ratio", "progress", "kernel distance", "class score", "PSNR, dB",
    "gain, dB", "mixtures", "paper",
)  # fmt: skip


class PhotoRows:
    """Rows of a table of photos, of which the first two are the test photos and a baseline.

    Args:
        ctx: Feature network and cache.
        name, images: The trivial baseline, (count, k, channels, height, width).
        truth: The sources that are mixed, of the same shape.
        paper: What the paper prints for the trivial baseline.
    """

    def __init__(
        self, ctx: Context, name: str, images: Tensor, truth: Tensor, paper: str = ""
    ) -> None:
        self.ctx, self.name, self.truth = ctx, name, truth
        self.rows: list[tuple[str, ...]] = []
        self.psnr = _psnr(images, truth)
        self.best = distances(ctx, "test photos", truth, ctx.photos)
        self.trivial = distances(ctx, name, images, ctx.photos)
        count = f"{len(truth):,}"
        self.rows.append(("test photos", *self._cells(self.best), "", "", count, ""))
        trivial = self._cells(self.trivial)
        self.rows.append((name, *trivial, mean_and_error(self.psnr), "", count, paper))

    def add(self, title: str, sources: Tensor, paper: str = "") -> None:
        """Adds a row for sources of the shape of the truth."""
        psnr = _psnr(sources, self.truth)
        cells = self._cells(distances(self.ctx, title, sources, self.ctx.photos))
        quality = mean_and_error(psnr), mean_and_error(psnr - self.psnr)
        self.rows.append((title, *cells, *quality, f"{len(sources):,}", paper))

    def table(self) -> Table:
        """All rows."""
        return Table(_HEADER, self.rows)

    def _cells(self, found: Distances | None) -> tuple[str, ...]:
        """Distance, ratio, progress, kernel distance and class score."""
        if found is None or self.trivial is None or self.best is None:
            return (f"{NETWORK} is not installed", "", "", "", "")
        trivial, best = self.trivial.frechet, self.best.frechet
        ratio = f"{found.frechet / trivial:.2f}" if trivial else ""
        progress = f"{(trivial - found.frechet) / (trivial - best):.0%}" if trivial != best else ""
        return (f"{found.frechet:.3g}", ratio, progress, found.kernel_cell(), found.score_cell())


def _psnr(sources: Tensor, truth: Tensor) -> Tensor:
    """PSNR of every mixture, (count,), in pieces: each source is compared with each other one."""
    parts = zip(sources.split(500), truth.split(500), strict=True)
    return torch.cat([metrics.psnr(a, b, permute=True) for a, b in parts])


def has_photos(ctx: Context, section: Section) -> bool:
    """Whether the set of photos exists; if not, the section says so."""
    try:
        load_images(ctx.photos, "test", root=ctx.root)
    except BasisError as error:
        section.text.append(f"no data: {error}")
        return False
    return True


def mixed_photos(
    ctx: Context, protocol: Protocol, count: int | None = None
) -> tuple[PhotoRows, Mixing]:
    """Pairs of test photos as the rows of a table, and how they are mixed."""
    count = count or ctx.count(1024, at_most=_LARGEST)
    truth = ctx.pairs(count, protocol=protocol, data=ctx.photos).sources
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    average = mixing(truth)[:, None].expand_as(truth)
    return PhotoRows(ctx, "mixture / 2", average, truth, PAPER[protocol]["trivial"]), mixing


def photo_table(
    ctx: Context, section: Section, protocol: Protocol, title: str, settings: dict[str, Any]
) -> None:
    """PSNR and distances of separated photos; guided by a weaker prior if they are samples."""
    if not has_photos(ctx, section):
        return
    prior = ctx.need("cifar10")
    if settings["estimate"] == "sample":
        prior = prior.autoguide(ctx.need("cifar10-small"))
    rows, mixing = mixed_photos(ctx, protocol)
    if protocol == "split":
        name, other = baseline_result(ctx, "nes", protocol, ctx.photos)
        section.add_cost(other)
        rows.add(name, other.sources)
    add_prior(ctx, section, rows, prior, mixing, title, settings, PAPER[protocol]["cifar10"])
    section.tables.append(rows.table())
    section.settings = {"data": ctx.photos, "protocol": protocol, **settings}


def add_prior(
    ctx: Context,
    section: Section,
    rows: PhotoRows,
    prior: Prior,
    mixing: Mixing,
    title: str,
    settings: dict[str, Any],
    paper: str,
) -> Tensor:
    """Adds the row, a picture and the note of a separation; returns its sources."""
    done = ctx.separate(prior, rows.truth, mixing, **settings)
    section.add_cost(done)
    rows.add(title, done.sources, paper)
    shown = min(8, len(rows.truth))
    section.add_panel(
        "Uncurated", rows.truth[:shown], done.sources[:shown], mixing,
        title=f"the first {shown}, {title}",
    )  # fmt: skip
    section.text.append(
        f"{_NOTE.format(trivial=rows.name)} The largest residual of any mixture is "
        f"{255 * done.residual.max().item():.2f} of an 8-bit step."
    )
    return done.sources


_mean = partial(photo_table, title="ours, posterior mean", settings=PHOTOS)
_sample = partial(photo_table, title="ours, one sample of each", settings=SAMPLE)
cifar_agnostic, cifar_split = partial(_mean, protocol="agnostic"), partial(_mean, protocol="split")
cifar_agnostic_samples = partial(_sample, protocol="agnostic")
cifar_split_samples = partial(_sample, protocol="split")

_METHODS: tuple[dict[str, Any], ...] = (
    {"method": "fast"},
    {"method": "fast", "estimate": "mean"},
    PHOTOS,
    {"method": "fast", "estimate": "sample"},
    {"method": "balanced", "estimate": "sample"},
    {"method": "langevin"},
    {"method": "ancestral"},
    {"method": "gibbs", "samples": 8, "estimate": "mean"},
)


def photo_methods(ctx: Context, section: Section) -> None:
    """The same mixtures of two photos by every method."""
    if not has_photos(ctx, section):
        return
    prior = ctx.need("cifar10")
    rows, mixing = mixed_photos(ctx, "agnostic", ctx.count(128))
    for settings in _METHODS:
        done = ctx.separate(prior, rows.truth, mixing, **settings)
        section.add_cost(done)
        rows.add(describe_settings(settings), done.sources)
    section.tables.append(rows.table())
    section.text.append(
        "Two goals. PSNR measures how close the sources are to the truth; a mean of several modes "
        "is closer than any one mode. The distances measure how much the sources look like photos, "
        "which a blurred mean does not. " + _NOTE.format(trivial="mixture / 2")
    )
    section.settings = {"data": ctx.photos}


def colorization(ctx: Context, section: Section) -> None:
    """Distances of colorized grey photos, and several colorizations of the same photos."""
    if not has_photos(ctx, section):
        return
    prior = ctx.need("cifar10")
    images = load_images(ctx.photos, "test", root=ctx.root)
    count = min(ctx.count(1024, at_most=10_000), len(images))
    truth = images.floats(torch.arange(count))[:, None]
    mixing = mixings.grey()
    grey = mixing(truth)[:, None].expand_as(truth)
    rows = PhotoRows(ctx, "grey photos", grey, truth, PAPER["grey"]["trivial"])
    settings, paper = {"method": color_sampler(prior)}, PAPER["grey"]["cifar10"]
    found = add_prior(ctx, section, rows, prior, mixing, "ours", settings, paper)
    vivid = add_colors(grey[:, :, :1], VIVID * (found - grey[:, :, :1]))
    rows.add(f"ours, colors x {VIVID}", vivid, paper)
    section.tables.append(rows.table())
    shown = min(4, len(truth))
    many = ctx.separate(prior, truth[:shown], mixing, samples=5, **settings)
    section.add_cost(many)
    columns = torch.cat([grey[:shown], many.samples[:, :, 0], truth[:shown]], dim=1)
    titles = ["grey", *(f"{i + 1}" for i in range(5)), "truth"]
    picture = plots.pictures_panel(columns, titles, title="five colorizations of each")
    section.add_picture("Several colorizations", picture)
    section.settings = {"data": ctx.photos}
