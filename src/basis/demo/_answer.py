"""What a run found, as the page shows it."""

from __future__ import annotations

import torch
from torch import Tensor

from basis import metrics
from basis.demo._markup import notice, picture, row, section
from basis.demo._run import Run
from basis.separation import Result, align

_FAR = 1.0  # 8-bit steps of residual from which sources do not make the mixture


def answer_view(run: Run) -> str:
    """The answer of a run that ended: sources, a verdict, draws, mean and uncertainty."""
    assert run.outcome is not None
    answer, result = run.outcome.answer, run.outcome.result
    if answer is None or result is None:
        return ""
    task = run.task
    if task.kind == "separate":
        parts = [_sources(run, answer, result)]
    else:
        parts = [_fillings(run, answer, result)]
    parts.append(_cost(result))
    if result.samples.shape[1] > 1:
        parts.append(_draws(run, result))
    return "".join(parts)


def _sources(run: Run, answer: Tensor, result: Result) -> str:
    truth, found = run.task.truth, answer[:, 0]
    k = found.shape[1]
    captions = [f"source {i + 1}" for i in range(k)]
    words = ""
    pictures = []
    if truth is not None:
        found = metrics.reorder(found, truth)
        each = [metrics.psnr(found[:, [i]], truth[:, [i]]).item() for i in range(k)]
        captions = [f"source {i + 1} · {each[i]:.1f} dB" for i in range(k)]
        words = "Above what was found, below what was mixed; the separation never saw the latter."
    for i in range(k):
        both = picture(found[0, i], f"separated source {i + 1}", captions[i])
        if truth is not None:
            both += picture(truth[0, i], f"true source {i + 1}", "truth", "small")
        pictures.append(f'<div class="pair">{both}</div>')
    remade = run.task.mixing()(found)
    top = max(1.0, run.task.observed.max().item())
    pictures.append(
        '<div class="pair sum">'
        + picture(remade[0] / top, "the separated sources mixed again", "mixed again")
        + picture(run.task.observed[0] / top, "the mixture", "the mixture", "small")
        + "</div>"
    )
    return verdict(run, result) + section("The sources", row(pictures, "found"), words)


def _fillings(run: Run, answer: Tensor, result: Result) -> str:
    """Colourings, or ways to fill in, the most plausible first."""
    task = run.task
    if task.kind == "colorize":
        drawn, title = answer[0, :, 0], "Colourings"
        words = "Each has the grey of the photo exactly; the most plausible is first."
    else:
        drawn, title = result.samples[0, :, 0], "Filled in"
        words = "What was not painted over is kept exactly; the most plausible is first."
    order = result.energies[0].argsort().tolist()
    shown = [picture(drawn[i], f"{title.lower()} {n + 1}", f"{n + 1}") for n, i in enumerate(order)]
    return verdict(run, result) + section(title, row(shown, "large"), words)


def verdict(run: Run, result: Result) -> str:
    """In words, whether the answer is to be believed."""
    steps = 255 * result.residual[0].item()
    if steps > _FAR:
        return notice(
            f"No sources between black and white make this mixture: {steps:.1f} of 255 grey steps "
            "are left over. Were these the weights it was mixed with?",
            "bad",
        )
    return ""


def _cost(result: Result) -> str:
    return (
        f'<p class="cost">{result.evaluations:,} network evaluations · '
        f"{result.seconds:.1f} s · residual {255 * result.residual[0].item():.2f}/255 · "
        f"seed {result.seed}</p>"
    )


def _draws(run: Run, result: Result) -> str:
    """All draws, ordered by energy, with their mean and how much they differ."""
    task = run.task
    if task.kind == "colorize":
        return ""
    order = result.energies[0].argsort().tolist()
    first = result.samples[:, order[0]]
    if task.truth is not None and task.kind == "separate":
        first = metrics.reorder(first, task.truth)
    allowed = result.exchangeable
    drawn = torch.cat([align(result.samples[:, i], first, allowed) for i in order])
    best = result.energies[0, order[0]].item()
    cards = []
    for place, (i, sources) in enumerate(zip(order, drawn, strict=True), start=1):
        above = result.energies[0, i].item() - best
        name = f"draw {place}"
        shown = [picture(x, f"{name}, source {j + 1}") for j, x in enumerate(sources)]
        words = "likeliest" if place == 1 else f"+{above:.0f} nats"
        cards.append(
            f'<div class="chain"><div class="chain-name">{name} · {words}</div>'
            f"{row(shown, 'tight')}</div>"
        )
    mean, spread = drawn.mean(dim=0), drawn.std(dim=0)
    means = [picture(x, f"mean of source {j + 1}") for j, x in enumerate(mean)]
    maps = [picture(_heat(x), f"uncertainty of source {j + 1}") for j, x in enumerate(spread)]
    summary = (
        f'<div class="chain"><div class="chain-name">mean of the draws</div>'
        f"{row(means, 'tight')}</div>"
        f'<div class="chain"><div class="chain-name">uncertainty: bright where they differ</div>'
        f"{row(maps, 'tight')}</div>"
    )
    if task.kind == "inpaint":  # whose draws are shown above
        return section("Where the draws differ", f'<div class="chains">{summary}</div>')
    several = f'<div class="chains">{"".join(cards)}</div><div class="chains">{summary}</div>'
    words = "In order of plausibility: a nat more of energy is e times less probable."
    return section("Draws from the posterior", several, words)


def _heat(spread: Tensor) -> Tensor:
    """A standard deviation, (channels, height, width), as colours: black, red, yellow, white."""
    share = (spread.mean(dim=0) / 0.5).clamp(0, 1) * 3
    return torch.stack([share, share - 1, share - 2]).clamp(0, 1)
