"""Ways to separate photos, by goal: near to the truth, or like photos."""

from __future__ import annotations

from typing import Any

from basis import metrics, mixings
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.feature_distance import NETWORK, Distances, distances
from basis.lab.photo_table import PHOTOS, has_photos
from basis.lab.section import Section, mean_and_error
from basis.lab.separated import separate_sources
from basis.plots.charts import Table

_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("effort=fast", {"effort": "fast"}),
    ("effort=fast choose=mean", {"effort": "fast", "choose": "mean"}),
    ("effort=balanced choose=mean", PHOTOS),
    ("effort=fast choose=draw", {"effort": "fast", "choose": "draw"}),
    ("effort=balanced choose=draw", {"effort": "balanced", "choose": "draw"}),
    ("langevin", {"sampler": "langevin"}),
    ("ancestral", {"sampler": "ancestral"}),
    ("posterior-sde", {"sampler": "posterior-sde"}),
    ("gibbs samples=8 choose=mean", {"sampler": "gibbs", "samples": 8, "choose": "mean"}),
)
"""What `separate` is given, as its arguments are written."""

_HEADER = (
    "way", "PSNR, dB", "gain, dB", "kernel distance", "distance", "network evaluations", "mixtures",
)  # fmt: skip


def compute(ctx: Context, section: Section) -> None:
    """Separates the same mixtures of two photos in every way."""
    if not has_photos(ctx, section):
        return
    prior = ctx.need("cifar10")
    truth = ctx.pairs(ctx.count(128), data=ctx.photos).sources
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    average = mixing(truth)[:, None].expand_as(truth)
    plain, count = metrics.psnr(average, truth, permute=True), f"{len(truth):,}"
    photos = distances(ctx, "the photos themselves", truth, ctx.photos)
    half = distances(ctx, "Average", average, ctx.photos)
    rows = [
        ("the photos themselves", "", "", *_cells(photos), "", count),
        ("Average", mean_and_error(plain), "", *_cells(half), "0", count),
    ]
    nearest, likest = [], []
    for title, settings in _WAYS:
        done = separate_sources(ctx, prior, truth, mixing, **settings)
        section.add_cost(done)
        found = distances(ctx, title, done.sources, ctx.photos)
        cells = mean_and_error(done.psnr), mean_and_error(done.psnr - plain)
        spent = f"{done.spent.double().mean().item():,.0f}"
        rows.append((title, *cells, *_cells(found), spent, count))
        nearest.append((done.psnr.mean().item(), title))
        if found is not None:
            likest.append((found.kernel, title))
    section.tables.append(Table(_HEADER, rows))
    section.text.append(
        "Two goals that do not go together. PSNR asks how near sources are to the truth, and a "
        "mean of several explanations is nearer than any one; the distances ask how much sources "
        "look like photos, which a blurred mean does not. “Gain” is over Average, mixture by "
        "mixture. Distances are from the test photos, Fréchet's and the unbiased kernel distance "
        f"(in thousandths), by the features of EfficientNet-Lite0. Nearest: {max(nearest)[1]}."
        + (f" Most like photos: {min(likest)[1]}." if likest else "")
    )
    section.settings = {"data": ctx.photos}


def _cells(found: Distances | None) -> tuple[str, str]:
    """Kernel distance and Fréchet's, as the table shows them."""
    if found is None:
        return (f"{NETWORK} is not installed", "")
    return (found.kernel_cell(), f"{found.frechet:.3g}")


TABLE = TableDefinition("photo-samplers", "Samplers for photos, by goal", compute, order=55)
