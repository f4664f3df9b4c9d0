"""PSNR of every method on the same mixtures of digits: what the two MNIST tables share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from basis import metrics
from basis._mix import Protocol
from basis.errors import BasisError
from basis.lab.baseline_results import baseline_result
from basis.lab.baselines import BASELINES
from basis.lab.context import Context
from basis.lab.section import Section, mean_and_error, similarity
from basis.lab.separated import separate_pairs
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table

PAPER: dict[str, dict[str, str]] = {
    "split": {"average": "14.8", "nmf": "16.0", "s-d": "18.5", "nes": "24.3", "basis": "29.5"},
    "agnostic": {
        "average": "14.9",
        "nmf": "9.4",
        "basis": "29.3",
        "glow": "22.7",
        "glow-10": "27.1",
    },
}
"""What the paper prints, in dB; shown beside ours and never as ours."""

_REASONS = {
    "basis": "the same dynamics, with a prior of a 25th of the operations of the paper's; and the "
    "authors' own code uses other steps than the paper prints (delta 3e-5, twice the weight).",
    "nmf": "the paper does not say how its NMF shares a mixture out; here what every dictionary "
    "explains is scaled so that the sources add up to the mixture, which with one dictionary for "
    "both sources gives each about half.",
    "s-d": "generators and search are as small as two cores allow.",
    "nes": "the network, the number of rounds and the order of sources (here the known one comes "
    "first) are ours, and it had minutes of one core; it still rises with more.",
    "glow": "a flow of 0.3 million parameters trained for hours on one core, against one of the "
    "published size on several GPUs; under noise its gradient leaves up to twice the error of our "
    "score network, and one wrong digit leads to the next.",
    "glow-10": "as for one draw.",
}
"""Why a row may differ from the paper's."""

SETTINGS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("basis", "BASIS, the paper's settings", {"sampler": "basis"}, 256),
    ("balanced", "effort balanced (recommended)", {"effort": "balanced"}, 1024),
    ("fast", "effort fast", {"effort": "fast"}, 256),
)
"""What our prior is measured with: name, title, settings, and mixtures of the full version."""

_TEN = {"sampler": "gibbs", "samples": 10, "choose": "likelihood"}
_FLOW: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("glow", "flow, one draw (gibbs)", {"sampler": "gibbs", "samples": 1}, 64),
    ("glow-10", "flow, best of 10 by likelihood (gibbs)", _TEN, 64),
)


def psnr_table(ctx: Context, section: Section, protocol: Protocol) -> None:
    """Fills a section with the PSNR of every baseline and of every setting of the priors."""
    printed = PAPER[protocol]
    truth = ctx.pairs(ctx.count(1024), protocol=protocol).sources
    rows: list[tuple[str, ...]] = []
    reasons: list[str] = []
    residual = 0.0

    def row(title: str, name: str, sources: Tensor, psnr: Tensor, spent: str = "") -> None:
        like = similarity(sources, truth[: len(sources)])
        paper = printed.get(name, "")
        rows.append((title, mean_and_error(psnr), like, f"{len(psnr):,}", paper, spent))
        if paper and abs(psnr.mean().item() - float(paper)) > 0.5 and name in _REASONS:
            reasons.append(f"{title}: {_REASONS[name]}")

    for name in BASELINES:
        if protocol == "agnostic" and name.startswith("nes"):
            continue  # one source is known there and the other is not: there is no agnostic form
        try:
            other = baseline_result(ctx, name, protocol)
        except BasisError as error:  # a package that it needs is not installed
            rows.append((BASELINES[name]().title, str(error), "", "", printed.get(name, ""), ""))
            continue
        section.add_cost(other)
        row(other.title, name, other.sources, other.psnr)
    measured = [(*settings, "mnist") for settings in SETTINGS]
    if protocol == "agnostic":  # the paper's flows are measured on agnostic pairs alone
        measured += [(*settings, "mnist-glow") for settings in _FLOW]
    for name, title, settings, full, which in measured:
        prior = ctx.prior(which)
        if prior is None:
            rows.append((title, "no prior", "", "", printed.get(name, ""), ""))
            continue
        done = separate_pairs(ctx, prior, ctx.count(full), protocol=protocol, **settings)
        section.add_cost(done)
        residual = max(residual, done.residual.max().item())
        spent = f"{done.spent.double().mean().item():,.0f}"
        row(title, name, done.sources, done.psnr, spent)
    header = ("method", "PSNR, dB", "SSIM", "mixtures", "paper", "network evaluations")
    section.tables.append(Table(header, rows))
    steps = 255 * float(residual)
    section.text.append(
        "PSNR by the paper's protocol (best permutation per mixture), mean ± standard error; "
        f"largest residual of any mixture {steps:.2f} of an 8-bit step. The paper's scores are of "
        "its NCSN, a network of 25 times the operations. Supervised methods see mixtures in "
        "training; the priors never do."
    )
    if reasons:
        section.text.append(
            "Where ours and the paper's differ by more than half a dB. " + " ".join(reasons)
        )
    section.settings = {"protocol": protocol}


def samples_panel(
    section: Section, caption: str, truth: Tensor, draws: Tensor, mixing: Mixing, title: str
) -> None:
    """Adds a picture of draws from the posterior of one mixture, (draws, k, ...), a row each."""
    names = [f"draw {i + 1}" for i in range(len(draws))]
    section.add_panel(caption, truth.expand_as(draws), draws, mixing, names=names, title=title)


def disagreement(samples: Tensor) -> Tensor:
    """Root mean square difference of draws from the first, sources in its order: (batch,)."""
    first = samples[:, 0]
    others = [metrics.reorder(s, first) for s in samples.unbind(1)[1:]]
    return metrics.rms(torch.stack([o - first for o in others], dim=1))
