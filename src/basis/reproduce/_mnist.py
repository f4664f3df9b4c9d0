"""The paper's tables and figures on MNIST."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings, panels
from basis._figures import COLORS, Table, figure_png, new_figure
from basis.baselines import BASELINES
from basis.mixings import Mixing
from basis.reproduce._baselines import baseline
from basis.reproduce._colour import PHOTOS, photo_data
from basis.reproduce._pieces import Piece, Workshop, dB, png
from basis.reproduce._shards import Shard

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

_WHY = {
    "basis": "the same dynamics, with a prior of a 25th of the operations of the paper's; and the authors' own code uses other "
    "steps than the paper prints (delta 3e-5, twice the weight).",
    "nmf": "the paper does not say how its NMF shares a mixture out; here what every dictionary explains is scaled so that the sources "
    "add up to the mixture, which with one dictionary for both sources gives each about half.",
    "s-d": "generators and search are as small as two cores allow.",
    "nes": "the network, the number of rounds and the order of sources (here the known one comes first) are ours, and it had "
    "minutes of one core; it still rises with more.",
    "glow": "a flow of 0.3 million parameters trained for hours on one core, against one of the published size on several GPUs; under "
    "noise its gradient leaves up to twice the error of our score network, and one wrong digit leads to the next.",
    "glow-10": "as for one draw.",
}
"""Why a row may differ from the paper's."""

_WAYS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("basis", "BASIS, the paper's settings", {"sampler": "basis"}, 256),
    ("balanced", "effort balanced (recommended)", {"effort": "balanced"}, 1024),
    ("fast", "effort fast", {"effort": "fast"}, 256),
)
"""What our prior is measured with: name, title, settings, and mixtures of the full version."""


STUCK = 20
"""PSNR, in dB, below which a mixture was explained in another way than it was made."""


def psnr_table(shop: Workshop, protocol: str) -> Piece:
    """PSNR of every method on the same mixtures."""
    kind = "class-agnostic" if protocol == "agnostic" else "class-split"
    piece = Piece(f"mnist-{protocol}", f"MNIST, {kind} pairs")
    printed = PAPER[protocol]
    truth = shop.pairs(shop.count(1024), protocol=protocol).sources
    rows: list[tuple[str, ...]] = []
    reasons: list[str] = []
    residual = 0.0

    def row(title: str, name: str, sources: Tensor, psnr: Tensor, spent: str = "") -> None:
        like = metrics.ssim(sources, truth[: len(sources)])
        paper = printed.get(name, "")
        cells = (title, dB(psnr), f"{like.mean().item():.3f}", f"{len(psnr):,}", paper, spent)
        rows.append(cells)
        if paper and abs(psnr.mean().item() - float(paper)) > 0.5 and name in _WHY:
            reasons.append(f"{title}: {_WHY[name]}")

    for name in BASELINES:
        if protocol == "agnostic" and name.startswith("nes"):
            continue  # one source is known there and the other is not: there is no agnostic form
        other = baseline(shop, name, protocol)
        piece.seconds += other.seconds
        row(other.title, name, other.sources, other.psnr)
    glow = {"sampler": "gibbs", "samples": 1}
    ten = {"sampler": "gibbs", "samples": 10, "choose": "likelihood"}
    for name, title, settings, full, which in (
        *((*way, "mnist") for way in _WAYS),
        ("glow", "flow, one draw (gibbs)", glow, 64, "mnist-glow"),
        ("glow-10", "flow, best of 10 by likelihood (gibbs)", ten, 64, "mnist-glow"),
    ):
        if protocol == "split" and which == "mnist-glow":
            continue  # the paper's flows are measured on agnostic pairs alone
        prior = shop.prior(which)
        if prior is None:
            rows.append((title, "no prior", "", "", printed.get(name, ""), ""))
            continue
        done = shop.separate(prior, shop.count(full), protocol=protocol, **settings)
        piece.spent(done)
        residual = max(residual, done.residual.max().item())
        spent = f"{done.spent.double().mean().item():,.0f}"
        row(title, name, done.sources, done.psnr, spent)
    header = ("method", "PSNR, dB", "SSIM", "mixtures", "paper", "network evaluations")
    piece.tables.append(Table(header, rows))
    piece.text.append(
        f"PSNR by the paper's protocol (best permutation per mixture), mean ± standard error; largest residual of any "
        f"mixture {metrics.residual_steps(torch.tensor(residual)).item():.2f} of an 8-bit step. The paper's scores are of its NCSN, "
        "a network of 25 times the operations. Supervised methods see mixtures in training; the priors never do."
    )
    if reasons:
        piece.text.append(
            "Where ours and the paper's differ by more than half a dB. " + " ".join(reasons)
        )
    piece.settings = {"protocol": protocol}
    return piece


def histogram(shop: Workshop) -> Piece:
    """How PSNR spreads over mixtures: near-perfect, or explained in another way."""
    piece = Piece("histogram", "PSNR of single mixtures")
    prior = shop.need("mnist", piece)
    figure, (axes,) = new_figure(7, 3.6)
    for (_, title, settings, full), color in zip(_WAYS[:2], COLORS[:2], strict=True):
        done = shop.separate(prior, shop.count(full), **settings)
        piece.spent(done)
        axes.hist(
            done.psnr.tolist(), bins=[2 * i for i in range(3, 25)], density=True, alpha=0.5,
            color=color, label=f"{title} ({len(done.psnr)} mixtures)",
        )  # fmt: skip
    axes.set(xlabel="PSNR of a mixture, dB", ylabel="share per dB")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
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
    truth = shop.pairs(count).sources
    rows, psnr = [], {}
    for sampler, steps, title in (
        ("greedy", 1000, "greedy ascent"),
        ("noise-conditioned", 25, "annealed ascent without noise"),
        ("noise-conditioned", 100, "annealed ascent without noise"),
        ("basis", 25, "annealed Langevin dynamics"),
        ("basis", 100, "annealed Langevin dynamics"),
    ):
        usual = steps >= 100
        fewer: dict[str, Any] = {} if usual else {"steps": steps}
        done = shop.separate(prior, count, sampler=sampler, **fewer)
        piece.spent(done)
        psnr[sampler, steps] = done.psnr
        like = f"{metrics.ssim(done.sources, truth).mean().item():.3f}"
        median = f"{metrics.summarise(done.psnr).median:.2f}"
        stuck = f"{(done.psnr < STUCK).float().mean().item():.0%}"
        rows.append((title, f"{steps}", dB(done.psnr), median, like, stuck, f"{count}"))
        if not usual:
            continue
        shown = min(3, count)
        mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
        words = f"{title}: {dB(done.psnr)} dB over {count} mixtures"
        piece.show(title, truth[:shown], done.sources[:shown], mixing, title=words)
    header = (
        "dynamics",
        "steps a level",
        "PSNR, dB",
        "median",
        "SSIM",
        f"below {STUCK} dB",
        "mixtures",
    )
    piece.tables.append(Table(header, rows))
    ahead = psnr["basis", 100] - psnr["noise-conditioned", 100]
    gains = [psnr[s, 100] - psnr[s, 25] for s in ("basis", "noise-conditioned")]
    piece.text.append(
        "The same prior, the same mixtures, as many evaluations. The paper finds that ascent to a mode gets stuck, with or without "
        "annealing, and that it is the noise which lets the modes be explored. Here, mixture by mixture, Langevin dynamics is ahead of "
        f"annealed ascent by {dB(ahead)} dB; four times the steps gain {dB(gains[0])} dB with the noise and {dB(gains[1])} dB "
        "without it. Greedy ascent under the model of the smallest noise never leaves where it starts."
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

    count, draws = shop.count(64, least=6), 4
    truth = shop.pairs(count).sources
    mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
    samples = shop.draws(prior, truth, mixing, draws, "repeats", piece)
    spread = disagreement(samples)
    order = spread.argsort(descending=True)
    for words, chosen in (
        ("most ambiguous", order[:2].tolist()),
        ("most certain", order[-1:].tolist()),
    ):
        for item in chosen:
            told = f"{words}: draws differ by {spread[item].item():.3f} rms"
            caption = f"Mixture {item}, {words} of {count}"
            _show_draws(piece, caption, truth[item], samples[item], mixing, told)
    piece.text.append(
        f"{draws} draws from the posterior of each of {count} mixtures. All reproduce the mixture exactly; where they "
        "differ, the mixture has more than one explanation."
    )
    return piece


def teaser(shop: Workshop) -> Piece:
    """Four digits in one picture, with the mixture that has the most explanations found and marked."""
    piece = Piece("teaser", "Four digits in one picture")
    prior = shop.need("mnist", piece)
    count, draws = shop.count(16, least=4), 4
    truth = shop.pairs(count, k=4).sources
    mixing = mixings.mixture((1.0,) * 4, truth.shape[2])
    done = shop.separate(prior, count, k=4, effort="best")
    piece.spent(done)
    again = shop.draws(prior, truth, mixing, draws, "teaser", piece)
    spread = disagreement(again)
    item = int(spread.argmax())
    shown = sorted({*range(min(3, count)), item})
    piece.show(
        "The first mixtures, and the most ambiguous",
        truth[shown],
        done.sources[shown],
        mixing,
        names=[f"{i} ambiguous" if i == item else f"{i}" for i in shown],
        title=f"four digits, effort best: {dB(done.psnr)} dB over {count} mixtures",
    )
    told = f"mixture {item}: draws differ by {spread[item].item():.3f} rms"
    caption = f"Mixture {item} drawn again: other digits, the same sum"
    _show_draws(piece, caption, truth[item], again[item], mixing, told)
    piece.text.append(
        f"The ambiguous mixture is the one of {count} whose {draws} posterior draws differ most; every draw reproduces the mixture "
        "exactly."
    )
    return piece


def _show_draws(
    piece: Piece, caption: str, truth: Tensor, draws: Tensor, mixing: Mixing, title: str
) -> None:
    """Adds draws from the posterior of one mixture, (draws, k, ...), a row each."""
    names = [f"draw {i + 1}" for i in range(len(draws))]
    piece.show(caption, truth.expand_as(draws), draws, mixing, names=names, title=title)


def disagreement(samples: Tensor) -> Tensor:
    """Root mean square difference of draws from the first, sources in its order: (batch,)."""
    first = samples[:, 0]
    others = [metrics.reorder(s, first) for s in samples.unbind(1)[1:]]
    return metrics.rms(torch.stack([o - first for o in others], dim=1))


def uncurated(shop: Workshop) -> Piece:
    """The first mixtures of the draw, whatever they look like, for every prior."""
    piece = Piece("uncurated", "Uncurated separations")
    shop.need("mnist", piece)
    best, draw = {"effort": "best"}, {"sampler": "gibbs"}
    for name, k, data, settings in (
        ("mnist", 2, None, best),
        ("mnist", 3, None, best),
        ("mnist", 4, None, best),
        ("mnist-glow", 2, None, draw),
        ("cifar10", 2, photo_data(shop), PHOTOS),
    ):
        prior = shop.prior(name)
        if prior is None:
            piece.text.append(f"no prior called {name!r} yet")
            continue
        count = shop.count(8, least=2)
        done = shop.separate(prior, count, k=k, data=data, **settings)
        piece.spent(done)
        truth = shop.pairs(count, k=k, data=data).sources
        weights = (1.0,) * k if data is None else (1 / k,) * k
        mixing = mixings.mixture(weights, truth.shape[2])
        way = " ".join(f"{key} {value}" for key, value in settings.items())
        caption = f"The first {count} mixtures of {k}, prior {name}"
        words = f"{name}, {k} sources, {way}: {dB(done.psnr)} dB"
        piece.show(caption, truth, done.sources, mixing, title=words)
    return piece
