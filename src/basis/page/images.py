"""The pictures that visitors choose: built-in samples, uploaded files, strokes on a canvas."""

from __future__ import annotations

import base64
import functools
import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from basis.errors import BasisError
from basis.page.access import Limits
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet
from basis.signals.pictures import read_picture

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
"""The accepted file formats."""
_BOX, _SIDE = 20, 28  # MNIST: a digit fits a box of 20 pixels, its center of mass in the middle
_INK = 0.1  # darker pixels are background
_CANVAS_BYTES, _CANVAS_PIXELS = 2_000_000, 1_000_000


@dataclass(frozen=True)
class Picture:
    """A source: image (channels, height, width) in [0, 1], and what the page calls it."""

    image: Tensor = field(repr=False)
    label: str


@functools.lru_cache(maxsize=4)
def samples(name: str) -> ImageSet:
    """The built-in images, read once: `sample` (digits) or `sample-photos`."""
    return load_images(name, "test")


def sample_picture(name: str, index: int) -> Picture:
    """One of the built-in images."""
    images = samples(name)
    label = ""
    if images.labels is not None and images.classes is not None:
        label = images.classes[int(images.labels[index])]
    return Picture(images.floats([index])[0], f"digit {label}" if name == "sample" else label)


@functools.lru_cache(maxsize=64)
def sample_numbers(name: str, page: int, count: int = 30) -> list[int]:
    """The numbers of the images on a page of samples; equally many of each digit, in order."""
    images = samples(name)
    if name != "sample" or images.labels is None:
        return [(page * count + i) % len(images) for i in range(count)]
    groups = [(images.labels == digit).nonzero().flatten().tolist() for digit in range(10)]
    rows = range(page * (count // 10), (page + 1) * (count // 10))
    return [group[i % len(group)] for i in rows for group in groups]


def read_upload(path: str | Path, limits: Limits) -> Tensor:
    """An uploaded picture, (1 or 3, height, width) in [0, 1].

    Anything else is refused with one sentence, which does not tell where the file is stored.
    """
    path = Path(path)
    name, accepted = path.name, ", ".join(FORMATS)
    if not path.is_file():
        raise BasisError(f"{name} did not arrive; please upload it again")
    size = path.stat().st_size
    if size > limits.megabytes * 1e6:
        raise BasisError(f"{name} has {size / 1e6:.1f} MB; at most {limits.megabytes:g} MB")
    most = f"at most {limits.pixels // 1_000_000} million pixels"
    try:
        with Image.open(path) as file:
            width, height = file.size
            kind, frames = file.format, getattr(file, "n_frames", 1)
    except Image.DecompressionBombError:
        raise BasisError(f"{name} has too many pixels; {most}") from None
    except Exception:  # decoders raise anything on bytes that are not a picture
        raise BasisError(f"{name} cannot be read as a picture; accepted: {accepted}") from None
    if frames > 1:
        raise BasisError(f"{name} is animated ({frames} frames); a still picture is needed")
    if kind not in FORMATS:
        raise BasisError(f"{name} is a {kind} file; accepted: {accepted}")
    if width * height > limits.pixels:
        raise BasisError(f"{name} has {width} x {height} pixels; {most}")
    if min(width, height) < 8:
        raise BasisError(f"{name} has {width} x {height} pixels; at least 8 x 8")
    try:
        return read_picture(path).values
    except BasisError:
        raise BasisError(f"{name} is broken: not all of its pixels can be read") from None


def read_strokes(url: object) -> Tensor:
    """The strokes on a canvas, (1, height, width) in [0, 1], from the data URL of its PNG.

    The PNG is transparent where nothing was drawn.
    """
    start = "data:image/png;base64,"
    try:
        if not isinstance(url, str) or not url.startswith(start) or len(url) > _CANVAS_BYTES:
            raise ValueError("not a PNG")
        data = base64.b64decode(url.removeprefix(start), validate=True)
        with Image.open(io.BytesIO(data), formats=["PNG"]) as file:
            if file.size[0] * file.size[1] > _CANVAS_PIXELS:
                raise ValueError("too large")
            alpha = np.asarray(file.convert("RGBA").getchannel("A"), dtype=np.float32)
    except Exception:  # decoders raise anything on bytes that are not a picture
        raise BasisError("the drawing did not arrive; please draw it again") from None
    return torch.from_numpy(alpha / 255)[None]


def as_digit(image: Tensor) -> Tensor:
    """A picture of one digit in the form of MNIST: bright on dark, scaled and centered.

    Dark ink on light paper is inverted.

    Args:
        image: (1 or 3, height, width) in [0, 1].

    Returns:
        (1, 28, 28).
    """
    grey = image.mean(dim=0)
    background = _edge(grey).median()
    if background > 0.5:
        grey, background = 1 - grey, 1 - background
    grey = (grey - background).clamp_min(0)
    if grey.max() < _INK:
        raise BasisError("the picture is empty: draw a digit, or choose another picture")
    grey = grey / grey.max()
    rows, columns = ((grey > _INK).any(dim=axis).nonzero().flatten() for axis in (1, 0))
    cut = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = (max(1, round(side * _BOX / max(cut.shape))) for side in cut.shape)
    small = _resize(cut, (height, width))
    corner = []
    for axis, side in enumerate(small.shape):
        mass = small.sum(dim=1 - axis)
        center = ((mass * torch.arange(side)).sum() / mass.sum()).item()
        corner.append(min(max(round(_SIDE / 2 - 0.5 - center), 0), _SIDE - side))
    digit = torch.zeros(1, _SIDE, _SIDE)
    digit[0, corner[0] : corner[0] + height, corner[1] : corner[1] + width] = small
    return digit


def _edge(grey: Tensor) -> Tensor:
    return torch.cat([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def as_square(image: Tensor, side: int, channels: int) -> Tensor:
    """The central square of a picture, resized to (channels, side, side)."""
    length = min(image.shape[1:])
    top, left = ((own - length) // 2 for own in image.shape[1:])
    cut = image[:, top : top + length, left : left + length]
    sized = torch.stack([_resize(channel, (side, side)) for channel in cut])
    if len(sized) == channels:
        return sized
    return sized.expand(3, -1, -1).clone() if channels == 3 else sized.mean(dim=0, keepdim=True)


def at_most(image: Tensor, side: int, least: int = 32) -> Tensor:
    """The picture with its longer side at most `side` pixels and its shorter at least `least`.

    What is too long for that is cut off at both ends.
    """
    height, width = (min(own, min(image.shape[1:]) * side // least) for own in image.shape[1:])
    top, left = (
        (own - cut) // 2 for own, cut in zip(image.shape[1:], (height, width), strict=True)
    )
    scale = max(min(1.0, side / max(height, width)), least / min(height, width))
    size = (min(side, round(height * scale)), min(side, round(width * scale)))
    cut = image[:, top : top + height, left : left + width]
    return torch.stack([_resize(channel, size) for channel in cut])


def as_mixture(image: Tensor, channels: int) -> Tensor:
    """A picture of a mixture, grey or in color; dark ink on light paper is inverted if grey."""
    if channels == 3:
        return image.expand(3, -1, -1)
    grey = image.mean(dim=0)
    return (1 - grey if _edge(grey).median() > 0.5 else grey)[None]


def _resize(channel: Tensor, size: tuple[int, int]) -> Tensor:
    """(height, width) at another size, with antialiasing, in [0, 1]."""
    if tuple(channel.shape) == size:
        return in_bytes(channel)
    picture = Image.fromarray(channel.numpy().astype(np.float32))
    picture = picture.resize((size[1], size[0]), Image.Resampling.LANCZOS)
    return in_bytes(torch.from_numpy(np.array(picture)))


def in_bytes(image: Tensor) -> Tensor:
    """Values rounded to 8 bits, so that a downloaded picture is exactly the one that was used."""
    return image.clamp(0, 1).mul(255).round().div(255)
