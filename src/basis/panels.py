"""Pictures of separations: labelled, enlarged pixel by pixel, truth beside where it is known."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis import metrics
from basis._files import whole_file
from basis.mixings import Mixing

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

__all__ = [
    "RESIDUAL_GAIN",
    "grid",
    "pictures_panel",
    "separation_panel",
    "states_panel",
    "to_picture",
    "write_picture",
]

RESIDUAL_GAIN = 20
"""Residuals are shown this many times enlarged: red where the sum is too dark, blue where too bright."""

_INK, _MUTED, _PAPER, _FRAME = (28, 30, 36), (112, 118, 130), (255, 255, 255), (214, 218, 226)
_GAP, _GROUP_GAP, _MARGIN, _HEADER, _CAPTION = 8, 22, 24, 26, 18


@dataclass(frozen=True)
class _Column:
    title: str
    cells: list[Image.Image]
    captions: list[str]
    opens_group: bool = False


def to_picture(image: Tensor) -> Image.Image:
    """A (channels, height, width) tensor in [0, 1] as an 8-bit picture."""
    from PIL import Image

    pixels = image.detach().cpu().clamp(0, 1).mul(255).round().to(torch.uint8)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels.movedim(0, -1).contiguous().numpy())


def write_picture(path: str | Path, picture: Image.Image) -> None:
    """Saves a picture whole or not at all; the ending of the path says the format."""
    with whole_file(path) as temporary:
        picture.save(temporary)


def separation_panel(
    mixture: Tensor,
    sources: Tensor,
    mixing: Mixing,
    *,
    truth: Tensor | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
) -> Image.Image:
    """One row per mixture: mixture, sources (and truth), their sum, and what is left.

    Args:
        mixture: (rows, observed channels, height, width).
        sources: (rows, k, channels, height, width). With a truth they are put in its order first.
        mixing: How the sources are put together again.
        truth: (rows, k, channels, height, width), where known.
        names: A name per row.
        title: A line above all.
        cell: Least side of a cell in pixels; images are enlarged by a whole factor.
    """
    mixture, sources = mixture.detach().cpu(), sources.detach().cpu()
    rows, k = sources.shape[:2]
    scores = None
    if truth is not None:
        truth = truth.detach().cpu()
        sources = metrics.reorder(sources, truth)
        scores = metrics.psnr_matrix(sources, truth).diagonal(dim1=1, dim2=2)
    remade = mixing(sources)
    residual = mixing.residual(sources, mixture)
    # Mixtures can exceed 1; they and their sums share one scale, so that they can be compared.
    top = max(1.0, mixture.max().item(), remade.max().item())
    steps = metrics.rms(residual) * 255

    columns = [_observed("mixture", mixture / top)]
    for i in range(k):
        captions = [""] * rows if scores is None else [f"{s:.1f} dB" for s in scores[:, i].tolist()]
        cells = [to_picture(x) for x in sources[:, i]]
        columns.append(_Column(f"source {i + 1}", cells, captions, opens_group=i == 0))
    if truth is not None:
        for i in range(k):
            cells = [to_picture(x) for x in truth[:, i]]
            columns.append(_Column(f"truth {i + 1}", cells, [""] * rows, opens_group=i == 0))
    together = _observed("sum" if k > 1 else "remade", remade / top)
    columns.append(_Column(together.title, together.cells, together.captions, opens_group=True))
    captions = [f"rms {s:.2f}/255" for s in steps.tolist()]
    left = [_diverging(r * RESIDUAL_GAIN) for r in residual]
    columns.append(_Column(f"residual ×{RESIDUAL_GAIN}", left, captions))
    return _draw(columns, names, title, cell)


def states_panel(
    mixture: Tensor,
    states: Mapping[float, Tensor],
    *,
    names: Sequence[str] | None = None,
    cell: int = 84,
) -> Image.Image:
    """One row per mixture: the mixture, then all sources at each noise level kept, largest first.

    Args:
        mixture: (rows, observed channels, height, width).
        states: Noise level to (rows, k, channels, height, width).
    """
    top = max(1.0, mixture.max().item())
    columns = [_observed("mixture", mixture.detach().cpu() / top)]
    for sigma in sorted(states, reverse=True):
        # The sources of one level stand above each other in one cell.
        stacked = states[sigma].detach().cpu().movedim(1, -3).flatten(-3, -2)
        cells = [to_picture(x) for x in stacked]
        columns.append(_Column(f"σ = {sigma:.2g}", cells, [""] * len(cells), opens_group=True))
    return _draw(columns, names, "", cell)


def pictures_panel(
    images: Tensor,
    titles: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    cell: int = 112,
) -> Image.Image:
    """Pictures in rows under the titles of their columns.

    Args:
        images: (rows, columns, channels, height, width), in [0, 1].
        titles: One per column.
    """
    columns = [
        _Column(words, [to_picture(x) for x in column], [""] * len(column))
        for words, column in zip(titles, images.unbind(1), strict=True)
    ]
    return _draw(columns, names, title, cell)


def grid(images: Tensor, columns: int, *, cell: int = 64, gap: int = 4) -> Image.Image:
    """Pictures side by side in rows, without words.

    Args:
        images: (count, channels, height, width), in [0, 1].
        columns: Pictures in a row.
        cell: Pixels that a picture is enlarged to at most, in whole steps.
    """
    from PIL import Image

    pictures = [to_picture(x) for x in images]
    factor = max(1, cell // max(pictures[0].size))
    width, height = (side * factor for side in pictures[0].size)
    rows = -(-len(pictures) // columns)
    across = min(columns, len(pictures))
    sheet = Image.new("RGB", (across * (width + gap) + gap, rows * (height + gap) + gap), _PAPER)
    for i, picture in enumerate(pictures):
        place = (gap + i % columns * (width + gap), gap + i // columns * (height + gap))
        sheet.paste(picture.resize((width, height), Image.Resampling.NEAREST), place)
    return sheet


def _observed(title: str, images: Tensor) -> _Column:
    # Several observed channels that are no colour picture are laid side by side.
    flat = images if images.shape[1] in (1, 3) else torch.cat(images.unbind(1), dim=-1)[:, None]
    return _Column(title, [to_picture(x) for x in flat], [""] * len(images))


def _diverging(residual: Tensor) -> Image.Image:
    """White at zero, red above, blue below."""
    mean = residual.mean(dim=0).clamp(-1, 1)
    up, down = mean.clamp_min(0), (-mean).clamp_min(0)
    return to_picture(torch.stack([1 - down, 1 - up - down, 1 - up]).clamp(0, 1))


def _draw(
    columns: list[_Column], names: Sequence[str] | None, title: str, cell: int
) -> Image.Image:
    from PIL import Image, ImageDraw

    small, font, large = _font(11), _font(13), _font(15)
    height = columns[0].cells[0].height
    factor = max(1, -(-cell // height))
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
    picture = Image.new("RGB", (width, top + _HEADER + count * row_height + _MARGIN - _GAP), _PAPER)
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


def _font(size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    # Matplotlib carries DejaVu Sans, which has every sign we write; it need not be imported for that.
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(path), size)
