"""What a run found, as the page shows it."""

from __future__ import annotations

import html

import torch
from torch import Tensor

from basis import metrics
from basis.page.markup import notice, picture, row, section
from basis.page.run import Run
from basis.result import Result

_FAR = 1.0  # 8-bit steps of residual from which sources do not make the mixture
_FULL = 0.5  # a deviation that is shown brightest


def answer_view(run: Run) -> str:
    """The answer of a run that ended: sources, a verdict, draws, mean and uncertainty."""
    assert run.outcome is not None
    answer, result = run.outcome.answer, run.outcome.result
    if answer is None or result is None:
        return ""
    task = run.task
    parts = [verdict(result)]
    if task.kind == "separate":
        parts.append(_sources(run, answer, result))
    else:
        parts.append(_fillings(run, answer, result))
    parts.append(_cost(result))
    if result.drawn and result.samples.shape[1] > 1 and task.kind != "colorize":
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
    places = truth_order(run, result)
    if not run.task.told:
        weights = run.task.weights(result)
        captions = [
            f"{words} · weight {weights[places[i]]:.2f}" for i, words in enumerate(captions)
        ]
        words = "Above what was found, below what was mixed; the separation never saw the latter."
    for i in range(k):
        both = picture(found[0, i], f"separated source {i + 1}", captions[i])
        if truth is not None:
            both += picture(truth[0, i], f"true source {i + 1}", "truth", "small")
        pictures.append(f'<div class="pair">{both}</div>')
    remade = run.task.mixing(result)(answer[:, 0])
    top = max(1.0, run.task.observed.max().item())
    pictures.append(
        '<div class="pair sum">'
        + picture(remade[0] / top, "the separated sources mixed again", "mixed again")
        + picture(run.task.observed[0] / top, "the mixture", "the mixture", "small")
        + "</div>"
    )
    return section("The sources", row(pictures, "found"), words)


def _fillings(run: Run, answer: Tensor, result: Result) -> str:
    """Colourings, or ways to fill in, the most plausible first."""
    assert run.outcome is not None
    if run.task.kind == "colorize":
        drawn, title = answer[0, :, 0], "Colourings"
        words = "Each has the grey of the photo; the most plausible is first."
    else:
        drawn, title = result.samples[0, :, 0], "Filled in"
        words = "What was not brushed over is kept; the most plausible is first."
    shown = [
        picture(drawn[i], f"{title.lower()} {n + 1}", f"{n + 1}")
        for n, i in enumerate(run.outcome.order)
    ]
    return section(title, row(shown, "large"), words)


def verdict(result: Result) -> str:
    """In words, whether the answer is to be believed."""
    steps = 255 * result.residual[0].item()
    if result.plausibility is None or result.plausible is None:
        if steps <= _FAR:
            return ""
        return notice(
            f"No sources between black and white make this mixture: {steps:.1f} of 255 grey steps "
            "are left over. Are these the weights it was mixed with?",
            "bad",
        )
    share = result.plausibility[0].item()
    if bool(result.plausible[0]):
        often = f"{round(100 * share)} of 100" if share >= 0.01 else "1 of 100 at most"
        return notice(
            f"<b>Plausible.</b> Of mixtures like those the prior was measured on, {often} "
            "come out as improbable as this or more so.",
            "good",
        )
    remark = html.escape(result.remarks[0].partition(": ")[2] or result.remarks[0])
    return notice(f"<b>Not plausible</b> ({share:.2g}). {remark[:1].upper()}{remark[1:]}.", "doubt")


def _cost(result: Result) -> str:
    return (
        f'<p class="cost">{result.evaluations:,} network evaluations · '
        f"{result.seconds:.1f} s · residual {255 * result.residual[0].item():.2f}/255 · "
        f"seed {result.seed}</p>"
    )


def _draws(run: Run, result: Result) -> str:
    """All draws, ordered by energy, with their mean, how much they differ, and alternatives."""
    assert run.outcome is not None and run.outcome.energies is not None
    task, order, energies = run.task, run.outcome.order, run.outcome.energies
    places = truth_order(run, result)
    cards = []
    for number, i in enumerate(order, start=1):
        above = (energies[i] - energies[order[0]]).item()
        words = "likeliest" if number == 1 else f"+{above:.0f} nats"
        sources = result.samples[0, i, places]
        cards.append(_card(f"draw {number} · {words}", f"draw {number}", sources))
    maps = torch.stack([_heat(x) for x in result.std[0, places]])
    summary = [
        _card("mean of the draws", "mean", result.mean[0, places]),
        _card("uncertainty: bright where they differ", "uncertainty", maps),
    ]
    below = f'<div class="chains">{"".join(summary)}</div>{_alternatives(result, places)}'
    if task.kind == "inpaint":  # whose draws are shown above
        return section("Where the draws differ", below)
    several = f'<div class="chains">{"".join(cards)}</div>{below}'
    words = "In order of plausibility: a nat more of energy is e times less probable."
    return section("Draws from the posterior", several, words)


def _alternatives(result: Result, places: list[int]) -> str:
    """The explanations that the draws fall into, with their weights."""
    modes = result.modes[0]
    if len(modes) == 1:
        return '<p class="hint">All draws agree on one explanation.</p>'
    cards = [
        _card(
            f"{round(100 * mode.weight)} % of the draws", f"alternative {n}", mode.sources[places]
        )
        for n, mode in enumerate(modes, start=1)
    ]
    return (
        f'<p class="hint"><b>Ambiguous.</b> The draws fall into {len(modes)} explanations of the '
        f'same mixture:</p><div class="chains">{"".join(cards)}</div>'
    )


def truth_order(run: Run, result: Result) -> list[int]:
    """The numbers of the result's sources in the order of the truth, where there is one."""
    k, truth = result.sources.shape[1], run.task.truth
    if truth is None or run.task.kind != "separate":
        return list(range(k))
    marked = metrics.reorder(result.sources, truth)[0]
    left = list(range(k))
    for place in range(k):
        same = next(i for i in left if torch.equal(result.sources[0, i], marked[place]))
        left.remove(same)
        left.append(same)
    return left


def _card(words: str, name: str, sources: Tensor) -> str:
    """Sources of one kind, (k, channels, height, width), side by side."""
    shown = [picture(x, f"{name}, source {j + 1}") for j, x in enumerate(sources)]
    return f'<div class="chain"><div class="chain-name">{words}</div>{row(shown, "tight")}</div>'


def _heat(spread: Tensor) -> Tensor:
    """A standard deviation, (channels, height, width), as colours: black, red, yellow, white."""
    share = (spread.mean(dim=0) / _FULL).clamp(0, 1) * 3
    return torch.stack([share, share - 1, share - 2]).clamp(0, 1)
