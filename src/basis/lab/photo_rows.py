"""The rows of a table of photos: how near they come, beside what needs no prior."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from basis import metrics
from basis.lab.context import Context
from basis.lab.feature_distance import NETWORK, Distances, distances
from basis.lab.section import mean_and_error
from basis.plots.charts import Table

NOTE = (
    "The distance is Fréchet's, between Gaussians fitted to the features of EfficientNet-Lite0; "
    "the paper's FID is the same with another network, so the two compare by ratio and not by "
    "value. It falls as the images grow in number: compare rows of one number. The ratio is to "
    "“{plain}” of the same number, which needs no prior; “of the way” is the share of the way from "
    "there to “the photos themselves”, the true {what}: the best answer there is, since they are "
    "among the test photos that all are compared with. The kernel distance (in thousandths) is "
    "unbiased: it does not fall with the number of images. Other photos would be at zero within "
    "its error; the photos themselves may come out a little below, for they meet themselves. "
    "“Gain” is of PSNR over “{plain}”, mixture by mixture."
)
_HEADER = (
    "method", "distance", "ratio", "of the way", "kernel distance", "class score", "PSNR, dB",
    "gain, dB", "mixtures", "paper",
)  # fmt: skip


@dataclass(frozen=True)
class _Bounds:
    """What the rows of one number of mixtures are compared with."""

    plain: Distances | None
    photos: Distances | None
    psnr: Tensor


@dataclass
class PhotoRows:
    """Rows of a table, in groups of one number of mixtures, the largest first.

    A group begins with the photos themselves and with what needs no prior.

    Attributes:
        ctx: Feature network and cache.
        plain: Name and images of what needs no prior, (count, k, channels, height, width).
        truth: The sources that are mixed, of the same shape.
        paper: What the paper prints of what needs no prior, beside the largest group.
    """

    ctx: Context
    plain: tuple[str, Tensor]
    truth: Tensor
    paper: str = ""
    _groups: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    _bounds: dict[int, _Bounds] = field(default_factory=dict)

    def add(self, title: str, sources: Tensor, paper: str = "") -> Tensor:
        """Adds a row for sources of the first mixtures.

        Args:
            title: Of the row.
            sources: (count, k, channels, height, width).
            paper: What the paper prints of it.

        Returns:
            The gain over what needs no prior, in dB of each mixture, (count,).
        """
        count = len(sources)
        bounds = self._group(count)
        psnr = _psnr(sources, self.truth[:count])
        gain = psnr - bounds.psnr
        found = distances(self.ctx, title, sources, self.ctx.photos)
        cells = (*self._cells(found, bounds), mean_and_error(psnr), mean_and_error(gain))
        self._groups[count].append((title, *cells, f"{count:,}", paper))
        return gain

    def add_missing(self, title: str, count: int, paper: str = "") -> None:
        """Adds a row for a prior that is not here (yet)."""
        self._group(count)
        self._groups[count].append((title, "no prior", *("",) * (len(_HEADER) - 3), paper))

    def table(self) -> Table:
        """All rows."""
        ordered = sorted(self._groups, reverse=True)
        return Table(_HEADER, [row for count in ordered for row in self._groups[count]])

    def _group(self, count: int) -> _Bounds:
        """What a group is compared with; its first two rows, where they are not there yet."""
        if count in self._bounds:
            return self._bounds[count]
        name, images = self.plain
        truth, images = self.truth[:count], images[:count]
        photos = distances(self.ctx, "the photos themselves", truth, self.ctx.photos)
        plain = distances(self.ctx, name, images, self.ctx.photos)
        bounds = _Bounds(plain, photos, _psnr(images, truth))
        paper = self.paper if count == len(self.truth) else ""
        self._bounds[count] = bounds
        self._groups[count] = [
            ("the photos themselves", *self._cells(photos, bounds), "", "", f"{count:,}", ""),
            (
                name, *self._cells(plain, bounds), mean_and_error(bounds.psnr), "", f"{count:,}",
                paper,
            ),
        ]  # fmt: skip
        return bounds

    def _cells(self, found: Distances | None, bounds: _Bounds) -> tuple[str, ...]:
        """Distance, ratio, share of the way, kernel distance and class score."""
        if found is None or bounds.plain is None or bounds.photos is None:
            return (f"{NETWORK} is not installed", "", "", "", "")
        plain, best = bounds.plain.frechet, bounds.photos.frechet
        ratio = f"{found.frechet / plain:.2f}" if plain else ""
        way = f"{(plain - found.frechet) / (plain - best):.0%}" if plain != best else ""
        return (f"{found.frechet:.3g}", ratio, way, found.kernel_cell(), found.score_cell())


def _psnr(sources: Tensor, truth: Tensor) -> Tensor:
    """PSNR of every mixture, (count,), in pieces: every source is compared with every other one."""
    parts = zip(sources.split(500), truth.split(500), strict=True)
    return torch.cat([metrics.psnr(a, b, permute=True) for a, b in parts])
