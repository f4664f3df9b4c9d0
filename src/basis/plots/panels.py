"""Panels of separations: observations, sources next to the truth, their sum and the residual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis import metrics
from basis.mixings.mixing import Mixing
from basis.plots.drawing import (
    Column,
    ValueRange,
    draw_sheet,
    enlargement,
    hide,
    limits,
    residual_picture,
    to_picture,
)

if TYPE_CHECKING:
    from PIL import Image

RESIDUAL_GAIN = 20
"""Residuals are enlarged by this factor: red where the sum is too low, blue where too high."""
UNCERTAIN = 0.25
"""The standard deviation shown as white, as a fraction of the range of values."""


def separation_panel(
    observation: Tensor,
    sources: Tensor,
    mixing: Mixing,
    *,
    truth: Tensor | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
    value_range: ValueRange = (0.0, 1.0),
    plausibility: Tensor | None = None,
    std: Tensor | None = None,
) -> Image.Image:
    """One row per item: observation, sources (std and truth), their sum and the residual.

    Args:
        observation: (batch, observed channels, *size).
        sources: (batch, k, channels, *size), of pictures or sound. With a truth they are put in
            its order first.
        mixing: How the sources make the observation.
        truth: (batch, k, channels, *size), if known.
        names: A name per row.
        title: A line above everything.
        cell: Least height of a cell in pixels; pictures are enlarged by a whole factor.
        value_range: The range of a source's values, which is shown and used for PSNR. Without a
            bound the values decide what is shown, and captions give the SNR.
        plausibility: (batch,), shown below the observations.
        std: (batch, k, channels, *size): a map of the uncertainty of every source, white where a
            quarter of the range is reached.
    """
    observation, sources = observation.detach().cpu(), sources.detach().cpu()
    std = None if std is None else std.detach().cpu()
    k = sources.shape[1]
    captions: list[list[str]] | None = None
    if truth is not None:
        truth = truth.detach().cpu()
        order = metrics.best_permutation(-metrics.squared_distances(sources, truth))
        sources = torch.stack([x[o] for x, o in zip(sources, order, strict=True)])
        if std is not None:
            std = torch.stack([x[o] for x, o in zip(std, order, strict=True)])
        captions = [_quality(sources[:, i], truth[:, i], value_range) for i in range(k)]
    total = mixing(sources)
    residual = mixing.residual(sources, observation)
    observed = _observed(mixing, observation)
    if observed is not None:  # what was not observed is hidden, and sets no scale
        observation = torch.where(observed, observation, total)
    shown = limits([sources] if truth is None else [sources, truth], value_range)
    low, high = shown
    sums = min(low, total.min().item()), max(high, total.max().item())
    # Observations and sums, which can exceed the range, have one scale.
    whole = _wider(sums, observation, value_range)

    notes = (
        None if plausibility is None else [f"plausibility {p:.2g}" for p in plausibility.tolist()]
    )
    columns = [_column("observation", observation, whole, cell, notes, observed=observed)]
    columns += _group("source", sources, shown, cell, captions)
    if std is not None:
        sizes = [[f"rms {rms:.2g}" for rms in metrics.rms(x).tolist()] for x in std.unbind(1)]
        if std.ndim == 5:  # one map for all channels
            std = std.square().mean(dim=2, keepdim=True).sqrt()
        columns += _group("±", std, (0.0, (high - low) * UNCERTAIN or 1.0), cell, sizes)
    if truth is not None:
        columns += _group("truth", truth, shown, cell)
    name = "sum" if k > 1 else "remade"
    columns.append(_column(name, total, whole, cell, new_group=True, observed=observed))
    bytes_ = tuple(value_range) == (0.0, 1.0)
    misfits = [
        f"rms {255 * r:.2f}/255" if bytes_ else f"rms {r:.2g}"
        for r in metrics.rms(residual).tolist()
    ]
    full = (high - low) / RESIDUAL_GAIN or 1.0
    pictures = [residual_picture(r, full, cell=cell) for r in residual]
    columns.append(Column(f"residual ×{RESIDUAL_GAIN}", pictures, misfits))
    return draw_sheet(columns, names, title, enlargement(sources[0, 0], cell))


def trajectory_panel(
    observation: Tensor,
    states: Mapping[float, Tensor],
    *,
    names: Sequence[str] | None = None,
    cell: int = 84,
    value_range: ValueRange = (0.0, 1.0),
) -> Image.Image:
    """One row per item: the observation, then all sources at each noise level, largest first.

    Args:
        observation: (batch, observed channels, *size).
        states: Noise level to (batch, k, channels, *size).
        names: A name per row.
        cell: Least height of the observation's cell in pixels.
        value_range: The range of a source's values; bounds of None are those of the last state.
    """
    observation = observation.detach().cpu()
    last = states[min(states)].detach().cpu() if states else observation
    shown = limits([last], value_range)
    columns = [_column("observation", observation, _wider(shown, observation, value_range), cell)]
    columns += [
        _column(f"σ = {sigma:.2g}", _stacked(states[sigma]), shown, cell, new_group=True)
        for sigma in sorted(states, reverse=True)
    ]
    return draw_sheet(columns, names, "", enlargement(observation[0], cell))


def samples_panel(
    observation: Tensor,
    samples: Tensor,
    *,
    modes: Sequence[Mapping[int, int]] | None = None,
    names: Sequence[str] | None = None,
    cell: int = 84,
    value_range: ValueRange = (0.0, 1.0),
) -> Image.Image:
    """One row per item: the observation, then every posterior sample.

    Args:
        observation: (batch, observed channels, *size).
        samples: (batch, samples, k, channels, *size).
        modes: For every item the number of the mode that each sample belongs to, shown below it if
            there are several.
        names, cell, value_range: As for `trajectory_panel`.
    """
    observation, samples = observation.detach().cpu(), samples.detach().cpu()
    shown = limits([samples], value_range)
    columns = [_column("observation", observation, _wider(shown, observation, value_range), cell)]
    for number, sample in enumerate(samples.unbind(1)):
        captions = [
            f"mode {item[number]}" if len(set(item.values())) > 1 else "" for item in modes or ()
        ]
        name, first = f"sample {number + 1}", number == 0
        columns.append(_column(name, _stacked(sample), shown, cell, captions, new_group=first))
    return draw_sheet(columns, names, "", enlargement(observation[0], cell))


def pictures_panel(
    images: Tensor,
    titles: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
    value_range: ValueRange = (0.0, 1.0),
) -> Image.Image:
    """Signals in rows under the titles of their columns.

    Args:
        images: (rows, columns, channels, *size).
        titles: One per column.
        names: A name per row.
        title: A line above everything.
        cell: Least height of a cell in pixels.
        value_range: The range of values shown; bounds of None are those of the signals.
    """
    shown = limits([images], value_range)
    columns = [
        _column(name, column, shown, cell)
        for name, column in zip(titles, images.unbind(1), strict=True)
    ]
    return draw_sheet(columns, names, title, enlargement(images[0, 0], cell))


def _column(
    title: str,
    signals: Tensor,
    value_range: tuple[float, float],
    cell: int,
    captions: list[str] | None = None,
    *,
    new_group: bool = False,
    observed: Tensor | None = None,
) -> Column:
    cells = [to_picture(x, value_range, cell=cell) for x in signals]
    if observed is not None:
        cells = [hide(picture, where) for picture, where in zip(cells, observed, strict=True)]
    return Column(title, cells, captions or [""] * len(cells), new_group)


def _group(
    title: str,
    signals: Tensor,
    value_range: tuple[float, float],
    cell: int,
    captions: list[list[str]] | None = None,
) -> list[Column]:
    """A column for each source of (batch, k, channels, *size)."""
    return [
        _column(
            f"{title} {i + 1}",
            x,
            value_range,
            cell,
            None if captions is None else captions[i],
            new_group=i == 0,
        )
        for i, x in enumerate(signals.unbind(1))
    ]


def _observed(mixing: Mixing, observation: Tensor) -> Tensor | None:
    """Where pictures were observed, (batch, channels, height, width); None: everywhere."""
    if getattr(mixing, "mask", None) is None or observation.ndim != 4:
        return None
    return mixing.observe(torch.ones_like(observation)) > 0


def _stacked(sources: Tensor) -> Tensor:
    """(batch, k, channels, *size) with the sources of an item below each other in one cell."""
    sources = sources.detach().cpu()
    return sources.movedim(1, 2).flatten(2, 3) if sources.ndim == 5 else sources.flatten(1, 2)


def _wider(
    shown: tuple[float, float], observation: Tensor, value_range: ValueRange
) -> tuple[float, float]:
    """The range shown of an observation, which can exceed that of the sources.

    Below a known bound of the sources it has only noise.
    """
    low, high = shown
    if value_range[0] is None:
        low = min(low, observation.min().item())
    return low, max(observation.max().item(), high)


def _quality(estimate: Tensor, truth: Tensor, value_range: ValueRange) -> list[str]:
    """A caption per item for one source, (batch, channels, *size)."""
    if None in value_range:
        ratios = metrics.snr(estimate[:, None], truth[:, None])
        return [f"SNR {value:.1f} dB" for value in ratios.tolist()]
    ratios = metrics.psnr(estimate[:, None], truth[:, None], value_range)
    return [f"{value:.1f} dB" for value in ratios.tolist()]
