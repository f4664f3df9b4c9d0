"""Signals as pictures, and sheets of them: images pixel by pixel, sound as waveforms."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.files import whole_file

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

ValueRange = tuple[float | None, float | None]
"""The values shown darkest and brightest (lowest and highest); None: those of the signals."""

LINE, AXIS, PAPER = (59, 91, 219), (214, 218, 226), (255, 255, 255)
HIDDEN = (150, 170, 205)
_INK, _MUTED, _FRAME = (28, 30, 36), (112, 118, 130), (214, 218, 226)
_GAP, _GROUP_GAP, _MARGIN, _HEADER, _CAPTION = 8, 22, 24, 26, 18


def to_picture(
    signal: Tensor, value_range: ValueRange = (0.0, 1.0), *, cell: int = 112
) -> Image.Image:
    """One signal as an 8-bit picture.

    Args:
        signal: (channels, height, width): an image, pixel by pixel; one or three channels are grey
            or color, others are placed side by side. (channels, time) or (time): a waveform per
            channel.
        value_range: The values shown darkest and brightest; None: the signal's own.
        cell: Height in pixels of a waveform, which is twice as wide.
    """
    values = signal.detach().cpu().float()
    if values.ndim == 1:
        values = values[None]
    if values.ndim not in (2, 3):
        raise BasisError(
            f"a signal of shape {tuple(values.shape)} cannot be drawn; "
            "(channels, height, width) and (channels, time) can"
        )
    low, high = limits([values], value_range)
    if high > low:
        scaled = ((values - low) / (high - low)).clamp(0, 1)
    else:
        scaled = torch.full_like(values, 0.5)
    return _waveforms(scaled, 2 * cell, cell) if values.ndim == 2 else _pixels(scaled)


def limits(signals: Sequence[Tensor], value_range: ValueRange) -> tuple[float, float]:
    """The range of values, with the bounds that are None taken from the signals."""
    low, high = value_range
    return (
        min(x.min().item() for x in signals) if low is None else low,
        max(x.max().item() for x in signals) if high is None else high,
    )


def hide(picture: Image.Image, observed: Tensor) -> Image.Image:
    """A picture with a color that no grey has where nothing was observed.

    Args:
        picture: Of an image, one pixel per value.
        observed: (channels, height, width) of bool; a pixel is shown if any channel was observed.
    """
    from PIL import Image

    if picture.size == (observed.shape[2], observed.shape[1]):
        shown = observed.any(dim=0)
    else:  # channels side by side
        shown = torch.cat(observed.unbind(0), dim=-1)
    mask = Image.fromarray(shown.to(torch.uint8).mul(255).numpy())
    return Image.composite(picture.convert("RGB"), Image.new("RGB", picture.size, HIDDEN), mask)


def enlargement(signal: Tensor, cell: int) -> int:
    """The whole factor that makes the picture of a signal at least `cell` pixels high.

    Waveforms are drawn at their size.
    """
    return max(1, -(-cell // signal.shape[-2])) if signal.ndim == 3 else 1


def residual_picture(residual: Tensor, full: float, *, cell: int = 112) -> Image.Image:
    """A residual, white at zero, red above, blue below; waveforms as such.

    Args:
        residual: (channels, *size).
        full: The size of a residual that is shown in full color, or at the edge of its cell.
        cell: As for `to_picture`.
    """
    if residual.ndim != 3:
        return to_picture(residual, (-full, full), cell=cell)
    mean = (residual / full).mean(dim=0).clamp(-1, 1)
    up, down = mean.clamp_min(0), (-mean).clamp_min(0)
    return to_picture(torch.stack([1 - down, 1 - up - down, 1 - up]).clamp(0, 1))


def write_picture(path: str | Path, picture: Image.Image) -> None:
    """Saves a picture whole or not at all; the ending of the path is the format."""
    with whole_file(path) as temporary:
        picture.save(temporary)


@dataclass(frozen=True)
class Column:
    """Pictures of one size below each other, with a title and a caption for each."""

    title: str
    cells: list[Image.Image]
    captions: list[str]
    new_group: bool = False


def draw_sheet(
    columns: Sequence[Column], names: Sequence[str] | None, title: str, factor: int
) -> Image.Image:
    """Columns side by side, their cells enlarged by a whole factor.

    Args:
        columns: One or more, with equal numbers of cells.
        names: A name per row, on the left.
        title: A line above everything.
        factor: Pixels for a pixel.
    """
    from PIL import Image, ImageDraw

    small, font, large = _font(11), _font(13), _font(15)
    height = columns[0].cells[0].height
    captioned = any(any(c.captions) for c in columns)
    tallest = max(c.cells[0].height for c in columns)
    row_height = tallest * factor + (_CAPTION if captioned else 0) + _GAP
    left = _MARGIN
    if names is not None:
        left += int(max(font.getlength(n) for n in names)) + 14
    lefts, x = [], left
    for number, column in enumerate(columns):
        x += _GROUP_GAP - _GAP if column.new_group and number else 0
        lefts.append(x)
        x += column.cells[0].width * factor + _GAP
    top = _MARGIN + (34 if title else 0)
    count = len(columns[0].cells)
    width = max(x - _GAP + _MARGIN, int(large.getlength(title)) + 2 * _MARGIN if title else 0)
    picture = Image.new("RGB", (width, top + _HEADER + count * row_height + _MARGIN - _GAP), PAPER)
    draw = ImageDraw.Draw(picture)
    if title:
        draw.text((_MARGIN, _MARGIN - 4), title, fill=_INK, font=large)
    for x, column in zip(lefts, columns, strict=True):
        side = column.cells[0].width * factor
        fits = font.getlength(column.title) <= side
        _centered(draw, (x, top), side, column.title, font if fits else small, _INK)
        for row, image in enumerate(column.cells):
            y = top + _HEADER + row * row_height
            enlarged = image.convert("RGB").resize(
                (image.width * factor, image.height * factor), Image.Resampling.NEAREST
            )
            picture.paste(enlarged, (x, y))
            box = (x - 1, y - 1, x + enlarged.width, y + enlarged.height)
            draw.rectangle(box, outline=_FRAME)
            corner = (x, y + enlarged.height + 2)
            _centered(draw, corner, side, column.captions[row], small, _MUTED)
    for row, name in enumerate(names or ()):
        y = top + _HEADER + row * row_height + height * factor // 2 - 8
        draw.text((_MARGIN, y), name, fill=_MUTED, font=font)
    return picture


def grid(
    images: Tensor,
    columns: int,
    *,
    cell: int = 64,
    gap: int = 4,
    value_range: ValueRange = (0.0, 1.0),
) -> Image.Image:
    """Signals side by side in rows, without text.

    Args:
        images: (count, channels, height, width) or (count, channels, time).
        columns: Pictures in a row.
        cell: Pixels that an image is enlarged to at most, in whole steps; a waveform's height.
        gap: Pixels between them.
        value_range: The range of values shown; bounds of None are those of the signals.
    """
    from PIL import Image

    shown = limits([images], value_range)
    pictures = [to_picture(x, shown, cell=cell) for x in images]
    factor = max(1, cell // max(pictures[0].size)) if images.ndim == 4 else 1
    width, height = (side * factor for side in pictures[0].size)
    rows = -(-len(pictures) // columns)
    across = min(columns, len(pictures))
    sheet = Image.new("RGB", (across * (width + gap) + gap, rows * (height + gap) + gap), PAPER)
    for i, picture in enumerate(pictures):
        corner = (gap + i % columns * (width + gap), gap + i // columns * (height + gap))
        sheet.paste(picture.resize((width, height), Image.Resampling.NEAREST), corner)
    return sheet


def _pixels(scaled: Tensor) -> Image.Image:
    from PIL import Image

    if scaled.shape[0] not in (1, 3):
        scaled = torch.cat(scaled.unbind(0), dim=-1)[None]
    pixels = scaled.mul(255).round().to(torch.uint8)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels.movedim(0, -1).contiguous().numpy())


def _waveforms(scaled: Tensor, width: int, height: int) -> Image.Image:
    """One track of `height` pixels per channel, below each other."""
    from PIL import Image, ImageDraw

    tracks = len(scaled)
    picture = Image.new("RGB", (width, tracks * height), PAPER)
    draw = ImageDraw.Draw(picture)
    for track, channel in enumerate(scaled):
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
        # More values than pixels: the range of each column, joined to that of the next.
        parts = at.tensor_split(width)
        ranges = [(part.min().item(), part.max().item()) for part in parts]
        for x, (top, bottom) in enumerate(ranges):
            after = ranges[min(x + 1, width - 1)]
            draw.line((x, min(top, after[1]), x, max(bottom, after[0])), fill=LINE)
    return picture


def _centered(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    width: int,
    text: str,
    font: ImageFont.FreeTypeFont,
    ink: tuple[int, int, int],
) -> None:
    x, y = corner
    draw.text((x + (width - font.getlength(text)) / 2, y), text, fill=ink, font=font)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    # Pillow's own font has no Greek and no accents, which titles and names of files have.
    file = resources.files("basis.plots").joinpath("fonts", "DejaVuSans.ttf")
    return ImageFont.truetype(io.BytesIO(file.read_bytes()), size)
