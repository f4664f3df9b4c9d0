"""Panels of separations: mixtures, sources beside the truth, their sum and the residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis import metrics
from basis.mixings.mixing import Mixing
from basis.plots.drawing import Column, draw_sheet, factor_for, hide, residual_picture, to_picture
from basis.priors.card import LIKELY

if TYPE_CHECKING:
    from PIL import Image


RESIDUAL_GAIN = 20
"""Residuals are shown enlarged so many times; red where the sum is too low, blue where too high."""


UNCERTAIN = 0.25
"""The deviation that an uncertainty map shows white, as a share of the range of values."""


def separation_panel(
    mixture: Tensor,
    sources: Tensor,
    mixing: Mixing,
    *,
    truth: Tensor | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
    low: float | None = 0.0,
    high: float | None = 1.0,
    plausibility: Tensor | None = None,
    std: Tensor | None = None,
) -> Image.Image:
    """One row per mixture: mixture, sources (and truth), their sum, and what is left.

    Args:
        mixture: (rows, observed channels, *size).
        sources: (rows, k, channels, *size), of pictures (two axes of size) or sound (one). With a
            truth they are put in its order first.
        mixing: How the sources are put together again.
        truth: (rows, k, channels, *size), where known.
        names: A name per row.
        title: A line above all.
        cell: Least height of a cell in pixels; pictures are enlarged by a whole factor.
        low, high: The range of a source's values, which is shown and by which PSNR is measured.
            Without one of them the values decide what is shown, and captions tell the SNR.
        plausibility: (rows,), of a result, told below the mixtures.
        std: (rows, k, channels, *size), of a result's draws: a map of the uncertainty of
            every source, white where a quarter of the range is reached.
    """
    mixture, sources = mixture.detach().cpu(), sources.detach().cpu()
    std = None if std is None else std.detach().cpu()
    rows, k = sources.shape[:2]
    captions = [[""] * rows] * k
    if truth is not None:
        truth = truth.detach().cpu()
        order = metrics.best_permutation(-metrics.squared_distances(sources, truth))
        sources = torch.stack([x[o] for x, o in zip(sources, order, strict=True)])
        if std is not None:
            std = torch.stack([x[o] for x, o in zip(std, order, strict=True)])
        captions = [_quality(sources[:, i], truth[:, i], low, high) for i in range(k)]
    remade = mixing(sources)
    residual = mixing.residual(sources, mixture)
    seen = _seen(mixing, mixture)
    if seen is not None:
        # What is hidden was not observed: it sets no scale, and is not shown.
        mixture = torch.where(seen, mixture, remade)
    bottom, top = _range([sources] if truth is None else [sources, truth], low, high)
    # Mixtures can exceed the range; they and their sums share one scale, to be compared. Where the
    # range is known, values of a mixture below it that no sum has are noise.
    least = min(x.min().item() for x in ((remade, mixture) if low is None else (remade,)))
    least = min(least, bottom)
    most = max(mixture.max().item(), remade.max().item(), top)
    is_unit = (low, high) == (0.0, 1.0)

    told = None if plausibility is None else [_plausible(p) for p in plausibility.tolist()]
    columns = [_column("mixture", mixture, least, most, cell, told, seen=seen)]
    for i in range(k):
        name = f"source {i + 1}"
        columns.append(_column(name, sources[:, i], bottom, top, cell, captions[i], i == 0))
    if std is not None:
        for i in range(k):
            sizes = [f"rms {size:.2g}" for size in metrics.rms(std[:, i]).tolist()]
            shown = std[:, i]
            if shown.ndim == 4:  # a map has no colours: the channels' deviations together
                shown = shown.square().mean(dim=1, keepdim=True).sqrt()
            white = (top - bottom) * UNCERTAIN or 1.0
            columns.append(_column(f"± {i + 1}", shown, 0.0, white, cell, sizes, i == 0))
    if truth is not None:
        for i in range(k):
            columns.append(
                _column(f"truth {i + 1}", truth[:, i], bottom, top, cell, opens_group=i == 0)
            )
    together = "sum" if k > 1 else "remade"
    columns.append(_column(together, remade, least, most, cell, opens_group=True, seen=seen))
    size = metrics.rms(residual).tolist()
    misfits = [f"rms {255 * r:.2f}/255" if is_unit else f"rms {r:.2g}" for r in size]
    left = [residual_picture(r, (top - bottom) / RESIDUAL_GAIN or 1.0, cell=cell) for r in residual]
    columns.append(Column(f"residual ×{RESIDUAL_GAIN}", left, misfits))
    return draw_sheet(columns, names, title, factor_for(sources[0, 0], cell))


def trajectory_panel(
    mixture: Tensor,
    states: Mapping[float, Tensor],
    *,
    names: Sequence[str] | None = None,
    cell: int = 84,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Image.Image:
    """One row per mixture: the mixture, then all sources at each noise level kept, largest first.

    Args:
        mixture: (rows, observed channels, *size).
        states: Noise level to (rows, k, channels, *size).
        names: A name per row.
        cell: Least height of the mixture's cell in pixels.
        low, high: The range of a source's values; None: that of the last state.
    """
    mixture = mixture.detach().cpu()
    bottom, top = _range([states[min(states)]] if states else [mixture], low, high)
    # Below the range of the sources a mixture has noise only, unless a bound is unknown.
    least = bottom if low is not None else min(bottom, mixture.min().item())
    columns = [_column("mixture", mixture, least, max(mixture.max().item(), top), cell)]
    for sigma in sorted(states, reverse=True):
        # The sources of one level are above each other in one cell: an axis of size of a picture,
        # a track of a waveform.
        above = states[sigma].detach().cpu()
        above = above.movedim(1, 2).flatten(2, 3) if above.ndim == 5 else above.flatten(1, 2)
        columns.append(_column(f"σ = {sigma:.2g}", above, bottom, top, cell, opens_group=True))
    return draw_sheet(columns, names, "", factor_for(mixture[0], cell))


def samples_panel(
    mixture: Tensor,
    samples: Tensor,
    *,
    modes: Sequence[Mapping[int, int]] | None = None,
    names: Sequence[str] | None = None,
    cell: int = 84,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Image.Image:
    """One row per mixture: the mixture, then every draw, its sources above each other.

    Args:
        mixture: (rows, observed channels, *size).
        samples: (rows, draws, k, channels, *size).
        modes: For every row the number of the mode that each draw belongs to, told below it where
            there are several.
        names, cell, low, high: As for `trajectory_panel`.
    """
    mixture, samples = mixture.detach().cpu(), samples.detach().cpu()
    bottom, top = _range([samples], low, high)
    least = bottom if low is not None else min(bottom, mixture.min().item())
    columns = [_column("mixture", mixture, least, max(mixture.max().item(), top), cell)]
    for number, draw in enumerate(samples.unbind(1)):
        above = draw.movedim(1, 2).flatten(2, 3) if draw.ndim == 5 else draw.flatten(1, 2)
        told = [
            f"mode {row[number]}" if len(set(row.values())) > 1 else "" for row in modes or ()
        ] or None
        columns.append(
            _column(f"draw {number + 1}", above, bottom, top, cell, told, opens_group=number == 0)
        )
    return draw_sheet(columns, names, "", factor_for(mixture[0], cell))


def pictures_panel(
    images: Tensor,
    titles: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Image.Image:
    """Signals in rows under the titles of their columns.

    Args:
        images: (rows, columns, channels, *size).
        titles: One per column.
        names: A name per row.
        title: A line above all.
        cell: Least height of a cell in pixels.
        low, high: The range of values shown; None: from the signals.
    """
    bottom, top = _range([images], low, high)
    columns = [
        _column(words, column, bottom, top, cell)
        for words, column in zip(titles, images.unbind(1), strict=True)
    ]
    return draw_sheet(columns, names, title, factor_for(images[0, 0], cell))


def _column(
    title: str,
    signals: Tensor,
    low: float,
    high: float,
    cell: int,
    captions: list[str] | None = None,
    opens_group: bool = False,
    seen: Tensor | None = None,
) -> Column:
    cells = [to_picture(x, low, high, cell=cell) for x in signals]
    if seen is not None:
        cells = [hide(picture, place) for picture, place in zip(cells, seen, strict=True)]
    return Column(title, cells, captions or [""] * len(cells), opens_group)


def _seen(mixing: Mixing, mixture: Tensor) -> Tensor | None:
    """Where pictures were observed, (rows, channels, height, width) of bool; None: everywhere."""
    mask = getattr(mixing, "mask", None)
    if mask is None or mixture.ndim != 4:
        return None
    return mixing.observe(torch.ones_like(mixture)) > 0


def _range(signals: Sequence[Tensor], low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds that are given, and those of the values for the others."""
    return (
        min(x.min().item() for x in signals) if low is None else low,
        max(x.max().item() for x in signals) if high is None else high,
    )


def _plausible(p: float) -> str:
    """What is said of a mixture's plausibility."""
    return f"plausible ({p:.2f})" if p >= LIKELY else "NOT plausible"


def _quality(estimate: Tensor, truth: Tensor, low: float | None, high: float | None) -> list[str]:
    """A caption per row for one source, (rows, channels, *size)."""
    if low is None or high is None:
        ratios = metrics.snr(estimate[:, None], truth[:, None])
        return [f"SNR {value:.1f} dB" for value in ratios.tolist()]
    ratios = metrics.psnr(estimate[:, None], truth[:, None], (low, high))
    return [f"{value:.1f} dB" for value in ratios.tolist()]
