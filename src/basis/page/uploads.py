"""What visitors bring: uploaded files, strokes on a canvas, samples of the package."""

from __future__ import annotations

import base64
import binascii
import functools
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.page.limits import Limits
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet
from basis.signals.old_observation import read_image

if TYPE_CHECKING:
    from PIL import Image


ACCEPTED = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}
"""Formats that are taken, with their endings."""
_BOX, _SIDE = 20, 28  # MNIST: a digit fits a box of 20 pixels, centred by weight in 28
_INK = 0.1  # darker is paper


@dataclass(frozen=True)
class Picture:
    """A source on the page.

    Attributes:
        image: (channels, height, width), in [0, 1].
        label: What the page calls it.
        reference: What the command line calls it (`sample:3`), where it is one of the package's.
    """

    image: Tensor = field(repr=False)
    label: str
    reference: str | None = None


@functools.lru_cache(maxsize=4)
def samples(name: str) -> ImageSet:
    """The images that ship with the package, read once: `sample` (digits) or `sample-photos`."""
    return load_images(name, "test")


def sample_picture(name: str, index: int) -> Picture:
    """One of `samples`."""
    images = samples(name)
    label = ""
    if images.labels is not None and images.classes is not None:
        label = images.classes[int(images.labels[index])]
    kind = "digit " if name == "sample" else ""
    return Picture(images.floats([index])[0], f"{kind}{label}", f"{name}:{index}")


def read_upload(path: str | Path, limits: Limits) -> Tensor:
    """An uploaded picture, (1 or 3, height, width) in [0, 1]; anything else is refused.

    The refusal is one sentence for the page, and says nothing of where the file lies.
    """
    from PIL import Image

    path = Path(path)
    name = path.name
    if not path.is_file():
        raise BasisError(f"{name} did not arrive; please upload it again")
    size = path.stat().st_size
    if size > limits.megabytes * 1e6:
        raise BasisError(
            f"{name} has {size / 1e6:.1f} MB; up to {limits.megabytes:g} MB are taken here"
        )
    kinds = ", ".join(ACCEPTED)
    try:
        with Image.open(path) as file:
            width, height = file.size
            kind, frames = file.format, getattr(file, "n_frames", 1)
    except Image.DecompressionBombError:
        raise BasisError(f"{name} has too many pixels: {_most(limits)}") from None
    except Exception:  # decoders raise anything on bytes that are no picture
        raise BasisError(f"{name} is not a picture that can be read; taken are {kinds}") from None
    if frames > 1:
        raise BasisError(f"{name} is animated ({frames} frames); a still picture is needed")
    if kind not in ACCEPTED:
        raise BasisError(f"{name} is a {kind} file; taken are {kinds}")
    if width * height > limits.pixels:
        raise BasisError(f"{name} is {width} x {height} pixels: {_most(limits)}")
    if min(width, height) < 8:
        raise BasisError(f"{name} is {width} x {height} pixels; at least 8 x 8 are needed")
    try:
        return read_image(path)
    except BasisError:
        raise BasisError(f"{name} is broken: its pixels cannot be read to the end") from None


def _most(limits: Limits) -> str:
    return f"up to {limits.pixels // 1_000_000} million pixels are taken here"


def decode_canvas(url: str, limits: Limits) -> Tensor:
    """What was painted on a canvas, (1, height, width) in [0, 1], from the PNG that it sends."""
    from PIL import Image

    try:
        head, _, body = url.partition(",")
        if not head.startswith("data:image/png;base64") or len(body) > 2 * limits.megabytes * 1e6:
            raise ValueError("not a canvas")
        with Image.open(io.BytesIO(base64.b64decode(body, validate=True)), formats=["PNG"]) as file:
            if file.size[0] * file.size[1] > 1_000_000:
                raise ValueError("too large for a canvas")
            pixels = np.asarray(file.convert("L"), dtype=np.float32) / 255
    except (ValueError, OSError, binascii.Error, SyntaxError, AttributeError):
        raise BasisError("the drawing did not arrive whole; please draw it again") from None
    return torch.from_numpy(pixels)[None]


def as_digit(image: Tensor) -> Tensor:
    """Any picture of one digit as MNIST has them: bright on dark, 28x28, centred by weight.

    Dark ink on light paper is turned round.

    Args:
        image: (1 or 3, height, width) in [0, 1].

    Returns:
        (1, 28, 28).
    """
    grey = image.mean(dim=0)
    edge = torch.cat([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    if edge.median() > 0.5:
        grey = 1 - grey
    grey = (grey - edge_level(grey)).clamp_min(0)
    peak = grey.max()
    if peak < _INK:
        raise BasisError("there is nothing on it to see: draw a digit, or choose another picture")
    grey = grey / peak
    rows, columns = ((grey > _INK).any(dim=axis).nonzero().flatten() for axis in (1, 0))
    cut = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    share = _BOX / max(cut.shape)
    small = _resized(
        cut, (max(1, round(cut.shape[0] * share)), max(1, round(cut.shape[1] * share)))
    )
    weight = small.sum()
    middle = [
        ((small.sum(dim=1 - axis) * torch.arange(small.shape[axis])).sum() / weight).item()
        for axis in (0, 1)
    ]
    top, left = (
        min(max(round(_SIDE / 2 - 0.5 - at), 0), _SIDE - side)
        for at, side in zip(middle, small.shape, strict=True)
    )
    digit = torch.zeros(1, _SIDE, _SIDE)
    digit[0, top : top + small.shape[0], left : left + small.shape[1]] = small
    return digit


def edge_level(grey: Tensor) -> Tensor:
    """The brightness of the paper: what most of the border has."""
    return torch.cat([grey[0], grey[-1], grey[:, 0], grey[:, -1]]).median()


def as_square(image: Tensor, side: int, channels: int) -> Tensor:
    """The central square of a picture at `side` pixels, (channels, side, side)."""
    least = min(image.shape[1:])
    top, left = ((length - least) // 2 for length in image.shape[1:])
    cut = image[:, top : top + least, left : left + least]
    sized = torch.stack([_resized(channel, (side, side)) for channel in cut])
    if len(sized) == channels:
        return sized
    return sized.expand(3, -1, -1).clone() if channels == 3 else sized.mean(dim=0, keepdim=True)


def at_most(image: Tensor, side: int, least: int = 32) -> Tensor:
    """The picture with its longer side at most `side` pixels and its shorter at least `least`."""
    height, width = image.shape[1:]
    share = min(1.0, side / max(height, width))
    share = max(share, least / min(height, width))
    size = (round(height * share), round(width * share))
    return torch.stack([_resized(channel, size) for channel in image])


def _resized(channel: Tensor, size: tuple[int, int]) -> Tensor:
    """(height, width) at another size, with antialiasing, in [0, 1]."""
    from PIL import Image

    if tuple(channel.shape) == size:
        return in_bytes(channel)
    picture: Image.Image = Image.fromarray(channel.numpy().astype(np.float32))
    picture = picture.resize((size[1], size[0]), Image.Resampling.LANCZOS)
    return in_bytes(torch.from_numpy(np.array(picture)))


def in_bytes(image: Tensor) -> Tensor:
    """Values that 8 bits hold, so that a picture that is downloaded is the one that was used."""
    return image.clamp(0, 1).mul(255).round().div(255)
