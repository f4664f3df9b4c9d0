"""Distances of separated and colorized photos from the test photos of CIFAR-10."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

_PRIORS = (("cifar10", "score network", 1024, 10_000), ("cifar10-glow", "Glow", 256, 256))
# names, titles, and mixtures of the full and of the largest version
_LARGEST = 5000  # mixtures of the largest version: as many sources as CIFAR-10 has test photos

_NOTE = (
    "The distance is the Fréchet distance between Gaussians fitted to the features of "
    "EfficientNet-Lite0; the paper's FID is the same with another network, so that ratios can be "
    "compared and values cannot. It falls with the number of images: compare rows of one number. "
    "The ratio is to “{trivial}” of the same number, which needs no prior; “progress” is the "
    "fraction of the way from there to “test photos”, the true {what}, which are among the test "
    "photos that all are compared with. The kernel distance (in thousandths) is unbiased: it does "
    "not fall with the number of images. “Gain” is in PSNR over “{trivial}”, mixture by mixture."
)
_HEADER = (
    "method", "distance", "ratio", "progress", "kernel distance", "class score", "PSNR, dB",
    "gain, dB", "mixtures", "paper",
)  # fmt: skip


@dataclass(frozen=True)
class _References:
    """What the rows with one number of mixtures are compared with."""

    trivial: Distances | None
    photos: Distances | None
    psnr: Tensor


@dataclass
class PhotoRows:
    """Rows of a table, in groups with the same number of mixtures, the largest first.

    A group begins with the test photos and the trivial baseline.

    Attributes:
        ctx: Feature network and cache.
        trivial: Name and images of the trivial baseline, (count, k, channels, height, width).
        truth: The sources that are mixed, of the same shape.
        paper: What the paper prints for the trivial baseline.
    """

    ctx: Context
    trivial: tuple[str, Tensor]
    truth: Tensor
    paper: str = ""
    _groups: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    _references: dict[int, _References] = field(default_factory=dict)

    def add(self, title: str, sources: Tensor, paper: str = "") -> None:
        """Adds a row for the sources of the first mixtures, (count, k, channels, height, width)."""
        count = len(sources)
        references = self._group(count)
        psnr = _psnr(sources, self.truth[:count])
        found = distances(self.ctx, title, sources, self.ctx.photos)
        cells = (*_cells(found, references), mean_and_error(psnr))
        cells += (mean_and_error(psnr - references.psnr),)
        self._groups[count].append((title, *cells, f"{count:,}", paper))

    def add_missing(self, title: str, count: int, paper: str = "") -> None:
        """Adds a row for a prior that does not exist."""
        self._group(count)
        self._groups[count].append((title, "no prior", *("",) * (len(_HEADER) - 3), paper))

    def table(self) -> Table:
        """All rows."""
        ordered = sorted(self._groups, reverse=True)
        return Table(_HEADER, [row for count in ordered for row in self._groups[count]])

    def _group(self, count: int) -> _References:
        """The references of a group, whose first two rows are added if it is new."""
        if count in self._references:
            return self._references[count]
        name, images = self.trivial
        truth, images = self.truth[:count], images[:count]
        photos = distances(self.ctx, "test photos", truth, self.ctx.photos)
        trivial = distances(self.ctx, name, images, self.ctx.photos)
        psnr = _psnr(images, truth)
        references = self._references[count] = _References(trivial, photos, psnr)
        paper, number = self.paper if count == len(self.truth) else "", f"{count:,}"
        self._groups[count] = [
            ("test photos", *_cells(photos, references), "", "", number, ""),
            (name, *_cells(trivial, references), mean_and_error(psnr), "", number, paper),
        ]
        return references


def _cells(found: Distances | None, references: _References) -> tuple[str, ...]:
    """Distance, ratio, progress, kernel distance and class score."""
    if found is None or references.trivial is None or references.photos is None:
        return (f"{NETWORK} is not installed", "", "", "", "")
    trivial, best = references.trivial.frechet, references.photos.frechet
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
    return PhotoRows(ctx, ("mixture / 2", average), truth, PAPER[protocol]["trivial"]), mixing


def photo_table(ctx: Context, section: Section, protocol: Protocol) -> None:
    """PSNR and distances of separated photos."""
    if not has_photos(ctx, section):
        return
    rows, mixing = mixed_photos(ctx, protocol)
    if protocol == "split":
        other = baseline_result(ctx, "nes", protocol, ctx.photos)
        section.add_cost(other)
        rows.add(other.title, other.sources)
    prior_rows(
        ctx, section, rows, mixing, PAPER[protocol], lambda prior: PHOTOS, "sources of the mixtures"
    )
    section.settings = {"data": ctx.photos, "protocol": protocol}


cifar_agnostic = partial(photo_table, protocol="agnostic")
cifar_split = partial(photo_table, protocol="split")


def sample_table(ctx: Context, section: Section, protocol: Protocol) -> None:
    """Distances of one posterior sample of every mixture."""
    if not has_photos(ctx, section):
        return
    rows, mixing = mixed_photos(ctx, protocol)
    prior, weaker = ctx.need("cifar10"), ctx.prior("cifar10-small")
    guided = prior if weaker is None else prior.autoguide(weaker)
    done = ctx.separate(guided, rows.truth, mixing, **SAMPLE)
    section.add_cost(done)
    rows.add("ours, one sample of each", done.sources, PAPER[protocol]["cifar10"])
    section.tables.append(rows.table())
    section.text.append(_NOTE.format(trivial="mixture / 2", what="sources of the mixtures"))
    shown = min(8, len(rows.truth))
    section.add_panel(
        "Uncurated samples", rows.truth[:shown], done.sources[:shown], mixing,
        title=f"the first {shown}, one sample of each",
    )  # fmt: skip
    section.settings = {"data": ctx.photos, "protocol": protocol, **SAMPLE}
    if weaker is not None:
        section.settings["autoguidance"] = weaker.name


cifar_agnostic_samples = partial(sample_table, protocol="agnostic")
cifar_split_samples = partial(sample_table, protocol="split")


def prior_rows(
    ctx: Context,
    section: Section,
    rows: PhotoRows,
    mixing: Mixing,
    printed: dict[str, str],
    settings: Callable[[Prior], dict[str, Any]],
    what: str,
    derived: Callable[[Tensor], dict[str, Tensor]] = lambda sources: {},
) -> list[tuple[Prior, str]]:
    """Adds the table and pictures of every prior of photos.

    Args:
        rows: The rows of the table so far.
        mixing: How the sources of the rows are mixed.
        printed: The paper's figures.
        settings: The arguments of `separate` for a prior.
        what: What the note calls the true sources.
        derived: Further rows made from the sources of a prior, by what their titles add.

    Returns:
        The priors that exist, with their titles.
    """
    used, residual = [], 0.0
    for name, title, full, at_most in _PRIORS:
        count = min(ctx.count(full, at_most=at_most), len(rows.truth))
        prior, paper = ctx.prior(name), printed.get(name, "")
        if prior is None:
            rows.add_missing(f"ours, {title}", count, paper)
            continue
        used.append((prior, title))
        truth = rows.truth[:count]
        done = ctx.separate(prior, truth, mixing, **settings(prior))
        section.add_cost(done)
        residual = max(residual, done.residual.max().item())
        rows.add(f"ours, {title}", done.sources, paper)
        for added, sources in derived(done.sources).items():
            rows.add(f"ours, {title}, {added}", sources, paper)
        shown = min(8, count)
        section.add_panel(
            f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing,
            title=f"the first {shown}, {title}",
        )  # fmt: skip
    section.tables.append(rows.table())
    section.text.append(
        f"{_NOTE.format(trivial=rows.trivial[0], what=what)} The largest residual of any mixture "
        f"is {255 * residual:.2f} of an 8-bit step."
    )
    return used


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
        "which a blurred mean does not. " + _NOTE.format(trivial="mixture / 2", what="sources")
    )
    section.settings = {"data": ctx.photos}


def _coloring(prior: Prior) -> dict[str, Any]:
    return {"method": color_sampler(prior)}


def colorization(ctx: Context, section: Section) -> None:
    """Distances of colorized gray photos, and several colorizations of the same photos."""
    if not has_photos(ctx, section):
        return
    images = load_images(ctx.photos, "test", root=ctx.root)
    count = min(ctx.count(1024, at_most=10_000), len(images))
    truth = images.floats(torch.arange(count))[:, None]
    mixing = mixings.grey()
    grey = mixing(truth)[:, None].expand_as(truth)
    rows = PhotoRows(ctx, ("gray photos", grey), truth, PAPER["grey"]["trivial"])

    def vivid(sources: Tensor) -> dict[str, Tensor]:
        seen = grey[: len(sources), :, :1]
        return {f"colors x {VIVID}": add_colors(seen, VIVID * (sources - seen))}

    used = prior_rows(ctx, section, rows, mixing, PAPER["grey"], _coloring, "photos", vivid)
    shown = min(4, len(truth))
    for prior, title in used:
        many = ctx.separate(prior, truth[:shown], mixing, samples=5, **_coloring(prior))
        section.add_cost(many)
        columns = torch.cat([grey[:shown], many.samples[:, :, 0], truth[:shown]], dim=1)
        titles = ["gray", *(f"{i + 1}" for i in range(many.samples.shape[1])), "truth"]
        picture = plots.pictures_panel(
            columns, titles, title=f"five colorizations of each, {title}"
        )
        section.add_picture(f"Several colorizations, {title}", picture)
    section.settings = {"data": ctx.photos}
