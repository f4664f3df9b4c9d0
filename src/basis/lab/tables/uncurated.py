"""The first mixtures of the draw, whatever they look like, for every prior."""

from __future__ import annotations

from basis import mixings
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.photo_table import PHOTOS
from basis.lab.section import Section, mean_and_error
from basis.lab.separated import separate_pairs


def compute(ctx: Context, section: Section) -> None:
    """Shows the first separations of every prior."""
    ctx.need("mnist")
    best, draw = {"effort": "best"}, {"sampler": "gibbs"}
    for name, k, data, settings in (
        ("mnist", 2, None, best),
        ("mnist", 3, None, best),
        ("mnist", 4, None, best),
        ("mnist-glow", 2, None, draw),
        ("cifar10", 2, ctx.photos, PHOTOS),
    ):
        prior = ctx.prior(name)
        if prior is None:
            section.text.append(f"no prior called {name!r} yet")
            continue
        count = ctx.count(8, least=2)
        done = separate_pairs(ctx, prior, count, k=k, data=data, **settings)
        section.add_cost(done)
        truth = ctx.pairs(count, k=k, data=data).sources
        weights = (1.0,) * k if data is None else (1 / k,) * k
        mixing = mixings.mixture(weights, truth.shape[2])
        way = " ".join(f"{key} {value}" for key, value in settings.items())
        caption = f"The first {count} mixtures of {k}, prior {name}"
        title = f"{name}, {k} sources, {way}: {mean_and_error(done.psnr)} dB"
        section.add_panel(caption, truth, done.sources, mixing, title=title)


TABLE = TableDefinition("uncurated", "Uncurated separations", compute, order=150)
