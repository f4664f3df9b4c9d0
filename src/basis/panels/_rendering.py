"""One signal as a picture: images pixel by pixel, sound as waveforms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis._errors import BasisError
from basis._files import whole_file

if TYPE_CHECKING:
    from PIL import Image

LINE, AXIS, PAPER = (59, 91, 219), (214, 218, 226), (255, 255, 255)
HIDDEN = (150, 170, 205)


def to_picture(
    signal: Tensor, low: float | None = 0.0, high: float | None = 1.0, *, cell: int = 112
) -> Image.Image:
    """One signal as an 8-bit picture.

    Args:
        signal: (channels, height, width): an image, pixel by pixel; one or three channels are grey
            or colour, others are laid side by side. (channels, time) or (time): a waveform per
            channel.
        low, high: The values shown darkest and brightest (lowest and highest); None: the signal's
            own least and largest.
        cell: Height in pixels of a waveform, which is twice as wide; images have a pixel per value.
    """
    values = signal.detach().cpu().float()
    if values.ndim == 1:
        values = values[None]
    if values.ndim not in (2, 3):
        raise BasisError(
            f"a signal of shape {tuple(values.shape)} cannot be drawn; "
            "(channels, height, width) and (channels, time) can"
        )
    shares = _shares(values, low, high)
    return _waveforms(shares, 2 * cell, cell) if values.ndim == 2 else _pixels(shares)


def hide(picture: Image.Image, seen: Tensor) -> Image.Image:
    """A picture with a colour of its own, which no grey value has, where nothing was observed.

    Args:
        picture: Of an image, a pixel per value.
        seen: (channels, height, width) of bool; a pixel is shown where any channel was observed.
    """
    from PIL import Image

    shown = seen.any(dim=0) if picture.size == (seen.shape[2], seen.shape[1]) else None
    if shown is None:  # channels side by side
        shown = torch.cat(seen.unbind(0), dim=-1)
    colour = Image.new("RGB", picture.size, HIDDEN)
    mask = Image.fromarray(shown.to(torch.uint8).mul(255).numpy())
    return Image.composite(picture.convert("RGB"), colour, mask)


def factor_for(signal: Tensor, cell: int) -> int:
    """By what whole factor the picture of a signal is enlarged to be at least `cell` pixels high.

    Waveforms are drawn at their size.
    """
    return max(1, -(-cell // signal.shape[-2])) if signal.ndim == 3 else 1


def residual_picture(residual: Tensor, span: float, *, cell: int = 112) -> Image.Image:
    """What is left of an observation: white at zero, red above, blue below; waveforms as such.

    Args:
        residual: Of an observation, (channels, *size).
        span: The size of a residual that is shown in full colour, or at the edge of its cell.
    """
    if residual.ndim != 3:
        return to_picture(residual, -span, span, cell=cell)
    mean = (residual / span).mean(dim=0).clamp(-1, 1)
    up, down = mean.clamp_min(0), (-mean).clamp_min(0)
    return to_picture(torch.stack([1 - down, 1 - up - down, 1 - up]).clamp(0, 1))


def write_picture(path: str | Path, picture: Image.Image) -> None:
    """Saves a picture whole or not at all; the ending of the path says the format."""
    with whole_file(path) as temporary:
        picture.save(temporary)


def _shares(values: Tensor, low: float | None, high: float | None) -> Tensor:
    """Values as shares of the range, in [0, 1]."""
    bottom = values.min().item() if low is None else low
    top = values.max().item() if high is None else high
    if top <= bottom:
        return torch.full_like(values, 0.5)
    return ((values - bottom) / (top - bottom)).clamp(0, 1)


def _pixels(shares: Tensor) -> Image.Image:
    from PIL import Image

    if shares.shape[0] not in (1, 3):
        shares = torch.cat(shares.unbind(0), dim=-1)[None]
    pixels = shares.mul(255).round().to(torch.uint8)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels.movedim(0, -1).contiguous().numpy())


def _waveforms(shares: Tensor, width: int, height: int) -> Image.Image:
    """One track of `height` pixels per channel, below each other."""
    from PIL import Image, ImageDraw

    tracks = len(shares)
    picture = Image.new("RGB", (width, tracks * height), PAPER)
    draw = ImageDraw.Draw(picture)
    for track, channel in enumerate(shares):
        base = track * height
        draw.line((0, base + height // 2, width - 1, base + height // 2), fill=AXIS)
        if track:
            draw.line((0, base, width - 1, base), fill=AXIS)
        at = base + (1 - channel) * (height - 5) + 2
        if len(channel) <= width:
            step = (width - 1) / max(1, len(channel) - 1)
            points = [(i * step, y) for i, y in enumerate(at.tolist())]
            draw.line(points * 2 if len(points) == 1 else points, fill=LINE)
            continue
        # More values than pixels: the least and the largest of each column, joined to the next.
        parts = at.tensor_split(width)
        spans = [(part.min().item(), part.max().item()) for part in parts]
        for x, (top, bottom) in enumerate(spans):
            after = spans[min(x + 1, width - 1)]
            draw.line((x, min(top, after[1]), x, max(bottom, after[0])), fill=LINE)
    return picture
