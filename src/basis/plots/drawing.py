"""One signal as a picture: images pixel by pixel, sound as waveforms."""

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


_INK, _MUTED, _FRAME = (28, 30, 36), (112, 118, 130), (214, 218, 226)
_GAP, _GROUP_GAP, _MARGIN, _HEADER, _CAPTION = 8, 22, 24, 26, 18


@dataclass(frozen=True)
class Column:
    """Pictures of one size below each other, with a title and a caption each."""

    title: str
    cells: list[Image.Image]
    captions: list[str]
    opens_group: bool = False


def draw_sheet(
    columns: Sequence[Column], names: Sequence[str] | None, title: str, factor: int
) -> Image.Image:
    """Columns side by side, their cells enlarged by a whole factor.

    Args:
        columns: One or more, of equally many cells.
        names: A name per row, on the left.
        title: A line above all.
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
        x += _GROUP_GAP - _GAP if column.opens_group and number else 0
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
        title_font = _fit((font, small), column.title, side)
        _centred(draw, (x, top), side, column.title, title_font, _INK)
        for row, image in enumerate(column.cells):
            y = top + _HEADER + row * row_height
            enlarged = image.convert("RGB").resize(
                (image.width * factor, image.height * factor), Image.Resampling.NEAREST
            )
            picture.paste(enlarged, (x, y))
            box = (x - 1, y - 1, x + enlarged.width, y + enlarged.height)
            draw.rectangle(box, outline=_FRAME)
            caption = column.captions[row]
            _centred(draw, (x, y + enlarged.height + 2), side, caption, small, _MUTED)
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
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Image.Image:
    """Signals side by side in rows, without words.

    Args:
        images: (count, channels, height, width) or (count, channels, time).
        columns: Pictures in a row.
        cell: Pixels that an image is enlarged to at most, in whole steps; a waveform's height.
        gap: Pixels between them.
        low, high: The range of values shown; None: from the signals.
    """
    from PIL import Image

    low = images.min().item() if low is None else low
    high = images.max().item() if high is None else high
    pictures = [to_picture(x, low, high, cell=cell) for x in images]
    factor = max(1, cell // max(pictures[0].size)) if images.ndim == 4 else 1
    width, height = (side * factor for side in pictures[0].size)
    rows = -(-len(pictures) // columns)
    across = min(columns, len(pictures))
    sheet = Image.new("RGB", (across * (width + gap) + gap, rows * (height + gap) + gap), PAPER)
    for i, picture in enumerate(pictures):
        place = (gap + i % columns * (width + gap), gap + i // columns * (height + gap))
        sheet.paste(picture.resize((width, height), Image.Resampling.NEAREST), place)
    return sheet


def _fit(fonts: Sequence[ImageFont.FreeTypeFont], text: str, width: int) -> ImageFont.FreeTypeFont:
    """The first font in which the text fits, or the last."""
    return next((f for f in fonts if f.getlength(text) <= width), fonts[-1])


def _centred(
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
