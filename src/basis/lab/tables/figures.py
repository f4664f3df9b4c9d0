"""Figures of digits: four in one image, histogram, states, uncurated results."""

from __future__ import annotations

import torch
from torch import Tensor

from basis import metrics, mixings, plots
from basis.errors import BasisError
from basis.lab.cache import CachedResult
from basis.lab.context import (
    Context,
    MissingRequirement,
    describe_settings,
    separate_with,
)
from basis.lab.report import Section, mean_and_error
from basis.lab.tables.mnist import METHODS_MEASURED
from basis.lab.tables.photos import PHOTOS
from basis.mixings.mixing import Mixing
from basis.plots.charts import COLORS, figure_png, new_figure
from basis.samplers import Basis
from basis.search.plan import Plan, Round

STATES = (1.0, 0.36, 0.13, 0.046, 0.01)
"""Five of the paper's ten noise levels."""


def samples_panel(
    section: Section, caption: str, truth: Tensor, samples: Tensor, mixing: Mixing, title: str
) -> None:
    """Adds a picture of posterior samples of one mixture, (samples, k, ...), one per row."""
    names = [f"sample {i + 1}" for i in range(len(samples))]
    section.add_panel(caption, truth.expand_as(samples), samples, mixing, names=names, title=title)


def disagreement(samples: Tensor) -> Tensor:
    """Root mean square difference of samples from the first, in its order of sources: (batch,)."""
    first = samples[:, 0]
    others = [metrics.reorder(s, first) for s in samples.unbind(1)[1:]]
    return metrics.rms(torch.stack([o - first for o in others], dim=1))


def teaser(ctx: Context, section: Section) -> None:
    """Mixtures of four digits, and posterior samples of the most ambiguous one."""
    prior = ctx.need("mnist")
    count, samples = ctx.count(16, at_least=4), 4
    truth = ctx.pairs(count, k=4).sources
    mixing = mixings.mixture((1.0,) * 4, truth.shape[2])
    done = ctx.separate_pairs(prior, count, k=4, method="best")
    again = ctx.separate(prior, truth, mixing, method="gibbs", samples=samples)
    section.add_cost(done)
    section.add_cost(again)
    difference = disagreement(again.samples)
    item = int(difference.argmax())
    shown = sorted({*range(min(3, count)), item})
    section.add_panel(
        "The first mixtures, and the most ambiguous",
        truth[shown],
        done.sources[shown],
        mixing,
        names=[f"{i} ambiguous" if i == item else f"{i}" for i in shown],
        title=f"four digits, method best: {mean_and_error(done.psnr)} dB over {count} mixtures",
    )
    title = f"mixture {item}: samples differ by {difference[item].item():.3f} rms"
    caption = f"Posterior samples of mixture {item}: other digits, the same sum"
    samples_panel(section, caption, truth[item], again.samples[item], mixing, title)
    section.text.append(
        f"The most ambiguous of {count} mixtures is the one whose {samples} posterior samples "
        "differ most; every sample reproduces the mixture."
    )


def histogram(ctx: Context, section: Section) -> None:
    """The distribution of PSNR over mixtures."""
    prior = ctx.need("mnist")
    try:
        figure, (axes,) = new_figure(7, 3.6)
    except BasisError as error:
        raise MissingRequirement(str(error)) from error
    for (_, title, settings, full), color in zip(METHODS_MEASURED[:2], COLORS[:2], strict=True):
        done = ctx.separate_pairs(prior, ctx.count(full), **settings)
        section.add_cost(done)
        axes.hist(
            done.psnr.tolist(), bins=[2 * i for i in range(3, 25)], density=True, alpha=0.5,
            color=color, label=f"{title} ({len(done.psnr)} mixtures)",
        )  # fmt: skip
    axes.set(xlabel="PSNR of a mixture, dB", ylabel="fraction per dB")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    section.pictures.append(("PSNR per mixture, class-agnostic pairs", figure_png(figure)))
    section.text.append(
        "A mixture is separated nearly perfectly or into another mode than the truth: the left "
        "part of the histogram shows other modes of the posterior, not noise."
    )


def states(ctx: Context, section: Section) -> None:
    """States of the paper's sampler at five of its noise levels."""
    prior = ctx.need("mnist")
    truth = ctx.pairs(2).sources
    mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
    settings = ctx.schedule({"method": Plan((Round(1, Basis()),), trajectory=STATES)})

    def run() -> CachedResult:
        result = separate_with(
            mixing(truth), prior, mixing, seed=ctx.seed, **settings,
            progress=lambda p: ctx.on_progress("states", p.done / p.total),
        )  # fmt: skip
        found = {f"{sigma:.6g}": x[:, 0] for sigma, x in result.trajectory.items()}
        return CachedResult(found, {"evaluations": int(result.item_evaluations.sum())})

    result = ctx.cached("states", ctx.key(prior, truth, mixing, settings), run)
    trajectory = {float(sigma): x for sigma, x in result.tensors.items()}
    panel = plots.trajectory_panel(mixing(truth), trajectory)
    section.add_picture("States at five of the ten noise levels", panel)
    section.evaluations, section.seconds = result.values["evaluations"], result.seconds


def uncurated(ctx: Context, section: Section) -> None:
    """The first separations of every prior."""
    ctx.need("mnist")
    for name, k, data, settings in (
        ("mnist", 2, None, {"method": "best"}),
        ("mnist", 3, None, {"method": "best"}),
        ("mnist", 4, None, {"method": "best"}),
        ("mnist-glow", 2, None, {"method": "gibbs"}),
        ("cifar10", 2, ctx.photos, PHOTOS),
    ):
        prior = ctx.prior(name)
        if prior is None:
            section.text.append(f"there is no prior {name!r}")
            continue
        count = ctx.count(8, at_least=2)
        done = ctx.separate_pairs(prior, count, k=k, data=data, **settings)
        section.add_cost(done)
        truth = ctx.pairs(count, k=k, data=data).sources
        alphas = (1.0,) * k if data is None else (1 / k,) * k
        mixing = mixings.mixture(alphas, truth.shape[2])
        section.add_panel(
            f"The first {count} mixtures of {k}, prior {name}", truth, done.sources, mixing,
            title=f"{name}, {k} sources, {describe_settings(settings)}: "
            f"{mean_and_error(done.psnr)} dB",
        )  # fmt: skip
