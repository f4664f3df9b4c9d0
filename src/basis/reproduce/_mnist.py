"""The paper's tables and figures on MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings, panels
from basis.baselines import BASELINES, Job
from basis.pairs import GROUPS
from basis.reproduce._pieces import Piece, Separated, Table, Workshop, dB, figure_png, png
from basis.reproduce._shards import Shard

PAPER: dict[str, dict[str, str]] = {
    "split": {"average": "14.8", "nmf": "16.0", "s-d": "18.5", "nes": "24.3", "basis": "29.5"},
    "agnostic": {"average": "14.9", "nmf": "9.4", "basis": "29.3"},
}
"""What the paper prints, in dB; shown beside ours and never as ours."""

_AUTHORS = {"sampler": "basis", "delta": 3e-5, "weight": 2.0}
_WAYS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("basis", "BASIS, the paper's settings", {"sampler": "basis"}, 256),
    ("balanced", "effort balanced (recommended)", {"effort": "balanced"}, 1024),
    ("fast", "effort fast", {"effort": "fast"}, 256),
    ("authors", "BASIS, its authors' code", _AUTHORS, 128),
    ("best", "effort best", {"effort": "best"}, 128),
)
"""What our prior is measured with: name, title, settings, and mixtures of the full version."""


def psnr_table(shop: Workshop, protocol: str) -> Piece:
    """PSNR of every method on the same mixtures."""
    kind = "class-agnostic" if protocol == "agnostic" else "class-split"
    piece = Piece(f"mnist-{protocol}", f"MNIST, {kind} pairs")
    printed = PAPER[protocol]
    rows: list[tuple[str, ...]] = []
    residual = 0.0
    for name in BASELINES:
        if protocol == "agnostic" and name.startswith("nes"):
            continue  # one source is known there and the other is not: there is no agnostic form
        scores, seconds, title = baseline_scores(shop, name, protocol)
        piece.seconds += seconds
        rows.append((title, dB(scores), f"{len(scores):,}", printed.get(name, ""), ""))
    prior = shop.prior("mnist")
    for name, title, settings, full in _WAYS:
        if prior is None:
            rows.append((title, "no prior", "", printed.get(name, ""), ""))
            continue
        done = shop.separate(prior, shop.count(full), protocol=protocol, **settings)
        _count(piece, done)
        residual = max(residual, done.residual.max().item())
        spent = f"{done.spent.double().mean().item():,.0f}"
        rows.append((title, dB(done.psnr), f"{len(done.psnr):,}", printed.get(name, ""), spent))
    glow = shop.prior("mnist-glow")
    for samples, full in ((1, 128), (10, 128)):
        title = "BASIS with Glow" + (", best of 10 by likelihood" if samples > 1 else "")
        value = {1: "22.7", 10: "27.1"}[samples] if protocol == "agnostic" else ""
        if glow is None:
            rows.append((title, "no prior", "", value, ""))
            continue
        settings = {"sampler": "gibbs", "samples": samples}
        if samples > 1:
            settings["choose"] = "likelihood"
        done = shop.separate(glow, shop.count(full), protocol=protocol, **settings)
        _count(piece, done)
        spent = f"{done.spent.double().mean().item():,.0f}"
        rows.append((f"{title} (gibbs)", dB(done.psnr), f"{len(done.psnr):,}", value, spent))
    header = ("method", "PSNR, dB", "mixtures", "paper", "network evaluations")
    piece.tables.append(Table(header, rows))
    piece.text.append(
        f"PSNR by the paper's protocol (best permutation per mixture), mean ± standard error; largest residual of any "
        f"mixture {metrics.residual_steps(torch.tensor(residual)).item():.2f} of an 8-bit step. The paper's scores are of its NCSN, "
        "a network of 25 times the operations. Supervised methods see mixtures in training; the priors never do."
    )
    piece.settings = {"protocol": protocol, "data": shop.data, "seed": shop.seed, "size": shop.size}
    return piece


def baseline_scores(shop: Workshop, name: str, protocol: str) -> tuple[Tensor, float, str]:
    """PSNR of a baseline on each mixture, the seconds it took, and its title."""
    from basis.data import load_images

    method = BASELINES[name]()
    count = shop.count(method.measured)

    def make() -> Shard:
        images = load_images(shop.data, "train", root=shop.root)
        floats = images.images.float().div(255)
        groups: Sequence[Tensor] = (floats, floats)
        if protocol == "split":
            assert images.labels is not None
            groups = [floats[torch.isin(images.labels, torch.tensor(g))] for g in GROUPS[shop.data]]
        method.fit(
            groups,
            Job(shop.size, shop.seed, lambda share: shop.tell(f"training {method.title}", share)),
        )
        pairs = shop.pairs(count, protocol=protocol)
        out = method.separate(pairs.sources.sum(dim=1), seed=shop.seed)
        return Shard({"psnr": metrics.psnr(out, pairs.sources)})

    about = {
        "baseline": name, "protocol": protocol, "count": count, "size": shop.size,
        "seed": shop.seed, "data": shop.data,
    }  # fmt: skip
    shard = shop.shards.get(f"baseline-{name}", about, make)
    return shard.tensors["psnr"], shard.seconds, method.title


def histogram(shop: Workshop) -> Piece:
    """How PSNR spreads over mixtures: near-perfect, or explained in another way."""
    piece = Piece("histogram", "PSNR of single mixtures")
    prior = shop.need("mnist", piece)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (_, title, settings, full), color in zip(
        (_WAYS[0], _WAYS[1]), ("#3b5bdb", "#c2255c"), strict=True
    ):
        done = shop.separate(prior, shop.count(full), **settings)
        _count(piece, done)
        axes.hist(
            done.psnr.tolist(), bins=[2 * i for i in range(3, 25)], density=True, alpha=0.5,
            color=color, label=f"{title} ({len(done.psnr)} mixtures)",
        )  # fmt: skip
    axes.set(xlabel="PSNR of a mixture, dB", ylabel="share per dB")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    piece.pictures.append(("PSNR per mixture, class-agnostic pairs", figure_png(figure)))
    piece.text.append(
        "A pair either comes out nearly perfect or is explained in another way than it was made: the left part of "
        "the histogram is other modes of the posterior, not noise."
    )
    return piece


def ablation(shop: Workshop) -> Piece:
    """Greedy ascent, annealed ascent and Langevin sampling on the same mixtures."""
    piece = Piece("ablation", "What the noise is for")
    prior = shop.need("mnist", piece)
    count = shop.count(64, least=3)
    rows = []
    for sampler, title in (
        ("greedy", "greedy ascent"),
        ("noise-conditioned", "annealed ascent without noise"),
        ("basis", "annealed Langevin dynamics"),
    ):
        done = shop.separate(prior, count, sampler=sampler)
        _count(piece, done)
        rows.append((title, dB(done.psnr), f"{count}"))
        shown = min(3, count)
        truth = shop.pairs(count).sources[:shown]
        picture = panels.separation_panel(
            truth.sum(dim=1),
            done.sources[:shown],
            mixings.mixture((1.0, 1.0), truth.shape[2]),
            truth=truth,
            title=f"{title}: {dB(done.psnr)} dB over {count} mixtures",
        )
        piece.pictures.append((title, png(picture)))
    piece.tables.append(Table(("dynamics", "PSNR, dB", "mixtures"), rows))
    piece.text.append(
        "The same prior, the same mixtures. The paper finds that ascent to a mode gets stuck, with or without annealing, and "
        "that it is the noise which lets the modes be explored; the figures are ours."
    )
    return piece


def states(shop: Workshop) -> Piece:
    """Intermediate states along the annealing."""
    piece = Piece("states", "Along the annealing")
    prior = shop.need("mnist", piece)
    from basis import separate

    truth = shop.pairs(2).sources
    levels = (1.0, 0.36, 0.13, 0.046, 0.01)
    settings = shop.schedule({"sampler": "basis"})

    def make() -> Shard:
        result = separate(
            truth.sum(dim=1), prior, seed=shop.seed, keep=levels, **settings,
            progress=lambda p: shop.tell("states", p.done / p.total),
        )  # fmt: skip
        kept = {f"{sigma:.6g}": x[:, 0] for sigma, x in result.kept.items()}
        return Shard(kept, {"evaluations": int(result.spent.sum())})

    shard = shop.shards.get("states", shop.about(prior, **settings), make)
    kept = {float(sigma): x for sigma, x in shard.tensors.items()}
    piece.pictures.append(
        ("States at five of the ten noise levels", png(panels.states_panel(truth.sum(dim=1), kept)))
    )
    piece.evaluations, piece.seconds = shard.values["evaluations"], shard.seconds
    return piece


def repeats(shop: Workshop) -> Piece:
    """The same mixtures drawn again and again: certain ones agree, ambiguous ones do not."""
    piece = Piece("repeats", "The same mixtures, drawn again")
    prior = shop.need("mnist", piece)
    from basis import separate

    count, draws = shop.count(64, least=6), 4
    truth = shop.pairs(count).sources
    settings = shop.schedule({"sampler": "gibbs"})

    def make() -> Shard:
        result = separate(
            truth.sum(dim=1), prior, samples=draws, seed=shop.seed, **settings,
            progress=lambda p: shop.tell("repeats", p.done / p.total),
        )  # fmt: skip
        return Shard({"samples": result.samples.half()}, {"evaluations": int(result.spent.sum())})

    about = shop.about(prior, count=count, draws=draws, **settings)
    shard = shop.shards.get("repeats", about, make)
    samples = shard.tensors["samples"].float()
    spread = disagreement(samples)
    order = spread.argsort(descending=True)
    mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
    for words, chosen in (
        ("most ambiguous", order[:2].tolist()),
        ("most certain", order[-1:].tolist()),
    ):
        for item in chosen:
            picture = panels.separation_panel(
                truth[item].sum(dim=0)[None].expand(draws, -1, -1, -1),
                samples[item],
                mixing,
                truth=truth[item][None].expand(draws, -1, -1, -1, -1),
                names=[f"draw {i + 1}" for i in range(draws)],
                title=f"{words}: draws differ by {spread[item].item():.3f} rms",
            )
            piece.pictures.append((f"Mixture {item}, {words} of {count}", png(picture)))
    piece.text.append(
        f"{draws} draws from the posterior of each of {count} mixtures. All reproduce the mixture exactly; where they "
        "differ, the mixture has more than one explanation."
    )
    piece.evaluations, piece.seconds = shard.values["evaluations"], shard.seconds
    return piece


def disagreement(samples: Tensor) -> Tensor:
    """Root mean square difference of draws from the first, sources in its order: (batch,)."""
    first = samples[:, 0]
    others = [metrics.reorder(s, first) for s in samples.unbind(1)[1:]]
    return metrics.rms(torch.stack([o - first for o in others], dim=1))


def uncurated(shop: Workshop) -> Piece:
    """The first mixtures of the draw, whatever they look like."""
    piece = Piece("uncurated", "Uncurated separations")
    prior = shop.need("mnist", piece)
    for k in (2, 3, 4):
        count = shop.count(8, least=2)
        done = shop.separate(prior, count, k=k, effort="best")
        _count(piece, done)
        truth = shop.pairs(count, k=k).sources
        picture = panels.separation_panel(
            truth.sum(dim=1),
            done.sources,
            mixings.mixture((1.0,) * k, truth.shape[2]),
            truth=truth,
            cell=84,
            title=f"{k} digits, effort best: {dB(done.psnr)} dB",
        )
        piece.pictures.append((f"The first {count} mixtures of {k}", png(picture)))
    return piece


def _count(piece: Piece, done: Separated) -> None:
    piece.seconds += done.seconds
    piece.evaluations += done.evaluations
