"""Pictures in columns and rows, with titles and captions, and pictures in a grid without words."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from torch import Tensor

from basis.panels._rendering import PAPER, to_picture

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

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
    file = resources.files("basis.panels").joinpath("fonts", "DejaVuSans.ttf")
    return ImageFont.truetype(io.BytesIO(file.read_bytes()), size)
