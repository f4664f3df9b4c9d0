"""Pictures and curves as HTML that needs nothing beside itself."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from basis.page.run import Frame, pixels

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 260, 96, 40, 16  # of a curve, in units of its own


def picture_url(image: Tensor) -> str:
    """A picture, (1 or 3, height, width), uint8 or in [0, 1], as a data URL."""
    from PIL import Image

    values = image if image.dtype == torch.uint8 else pixels(image)
    array = values[0] if len(values) == 1 else values.movedim(0, -1).contiguous()
    file = io.BytesIO()
    Image.fromarray(array.numpy()).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def picture(image: Tensor, alt: str, caption: str = "", kind: str = "") -> str:
    """A picture with a caption below."""
    # Small pictures are enlarged pixel by pixel, photos smoothly.
    smooth = " smooth" if max(image.shape[1:]) > 96 else ""
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="pic {kind}{smooth}"><img src="{picture_url(image)}" '
        f'alt="{html.escape(alt, quote=True)}">{words}</figure>'
    )


def row(pictures: Sequence[str], kind: str = "") -> str:
    """Pictures side by side, wrapped where the page is narrow."""
    return f'<div class="pics {kind}">{"".join(pictures)}</div>'


def section(title: str, body: str, words: str = "") -> str:
    """A heading, a sentence and what belongs to it."""
    said = f'<p class="hint">{words}</p>' if words else ""
    return f'<section class="part"><h3>{html.escape(title)}</h3>{said}{body}</section>'


def notice(words: str, kind: str = "info") -> str:
    """A line of state, read out by screen readers when it changes; kind: info, busy, bad, good."""
    return f'<div class="notice {kind}" role="status" aria-live="polite">{words}</div>'


def chains_view(frame: Frame) -> str:
    """The chains of a frame: as they are, and below what the prior takes them to become."""
    many = len(frame.states)
    parts = []
    for chain in range(many):
        name = f"chain {chain + 1}" if many > 1 else "one chain"
        noisy = [
            picture(x, f"{name}, source {i + 1}, with noise {frame.sigma:.2g}")
            for i, x in enumerate(frame.states[chain])
        ]
        clean = [
            picture(x, f"{name}, source {i + 1}, as the prior sees it")
            for i, x in enumerate(frame.guesses[chain])
        ]
        parts.append(
            f'<div class="chain"><div class="chain-name">{name}</div>'
            f"{row(noisy, 'tight')}{row(clean, 'tight')}</div>"
        )
    words = "Above, the chains with their noise; below, what the prior sees in them."
    return f'<div class="chains">{"".join(parts)}</div><p class="hint">{words}</p>'


def curves(frames: Sequence[Frame], at: int | None = None) -> str:
    """Noise level, energy and residual of a run's frames, with a mark at one of them."""
    if not frames:
        return ""
    drawn = [
        _curve("noise level σ", [f.sigma for f in frames], frames, at),
        _curve("energy, nats", [f.energy for f in frames], frames, at),
        _curve("residual, 8-bit steps", [255 * f.residual for f in frames], frames, at),
    ]
    return f'<div class="curves">{"".join(drawn)}</div>'


def _curve(name: str, values: Sequence[float], frames: Sequence[Frame], at: int | None) -> str:
    """One curve on a logarithmic axis."""
    positive = [max(v, 1e-6) for v in values]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    if high - low < 0.05:
        low, high = low - 0.5, high + 0.5
    steps = max(1, frames[-1].steps)

    def x(frame: Frame) -> float:
        return _LEFT + (_WIDTH - _LEFT - 6) * frame.step / steps

    def y(value: float) -> float:
        return 6 + (_HEIGHT - _BOTTOM - 10) * (high - math.log10(value)) / (high - low)

    points = " ".join(f"{x(f):.1f},{y(v):.1f}" for f, v in zip(frames, positive, strict=True))
    marks = [
        f'<text x="{_LEFT - 5}" y="{y(10**v) + 3:.1f}" text-anchor="end">{_short(10**v)}</text>'
        for v in (low, high)
    ]
    mark = len(frames) - 1 if at is None else at
    dot = f'<circle cx="{x(frames[mark]):.1f}" cy="{y(positive[mark]):.1f}" r="3.5"/>'
    floor = _HEIGHT - _BOTTOM
    return (
        f'<figure class="curve"><figcaption>{name}: <b>{_short(values[mark])}</b></figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}, by step">'
        f'<path class="axis" d="M{_LEFT} 4V{floor}H{_WIDTH - 4}"/>{"".join(marks)}'
        f'<text x="{_LEFT}" y="{_HEIGHT - 3}">0</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 3}" text-anchor="end">step {steps}</text>'
        f'<polyline points="{points}"/>{dot}</svg></figure>'
    )


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
