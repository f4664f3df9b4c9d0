"""Intermediate states along the annealing."""

from __future__ import annotations

from basis import mixings, plots
from basis._separate import separate
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.result_cache import CachedResult
from basis.lab.section import Section, png
from basis.lab.separated import ROOMS, separation_key

LEVELS = (1.0, 0.36, 0.13, 0.046, 0.01)


def compute(ctx: Context, section: Section) -> None:
    """Shows the paper's sampler at five of its noise levels."""
    prior = ctx.need("mnist")
    truth = ctx.pairs(2).sources
    mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
    settings = ctx.schedule({"sampler": "basis"}) | {"keep": LEVELS}

    def run() -> CachedResult:
        result = separate(
            mixing(truth), prior, mixing=mixing, seed=ctx.seed, **settings,
            progress=lambda p: ctx.on_progress("states", p.done / p.total),
        )  # fmt: skip
        kept = {f"{sigma:.6g}": x[:, 0] for sigma, x in result.kept.items()}
        return CachedResult(kept, {"evaluations": int(result.spent.sum())})

    key = separation_key(ctx, prior, truth, mixing, settings)
    result = ctx.cached("states", key, run, ROOMS)
    kept = {float(sigma): x for sigma, x in result.tensors.items()}
    panel = plots.trajectory_panel(mixing(truth), kept)
    section.pictures.append(("States at five of the ten noise levels", png(panel)))
    section.evaluations, section.seconds = result.values["evaluations"], result.seconds


TABLE = TableDefinition("states", "Along the annealing", compute, order=130)
