"""Single pictures: PNG, JPEG and the like, upright and without alpha."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from basis._errors import BasisError
from basis._reading import check_regular
from basis.data._arrays import NUMPY, load_arrays, pick
from basis.data._listing import FORMATS, PICTURES
from basis.data._pixels import (
    as_batch,
    as_bytes,
    as_floats,
    check_channels,
    picture_pixels,
    to_channels,
)

MOST_PIXELS = 24_000_000
"""Pixels of a picture that is separated as it is, in tiles: larger ones take very long."""

_REDIRECTING = threading.Lock()


def read_image(path: str | Path, *, channels: int | None = None, most: int | None = None) -> Tensor:
    """One picture as float32 (c, h, w).

    Image files come out in [0, 1], grey with one channel and colour with three; 16-bit grey keeps
    its precision. Alpha is dropped, palettes are resolved, the EXIF orientation is applied. An
    .npy or .npz (array `image`, or the only one) comes out as it is if float, since it may be a
    mixture beyond 1, and divided by 255 if uint8. `channels` 1 or 3 converts. An image file of
    more than `most` pixels is refused before it is decoded.
    """
    check_channels(channels)
    path = Path(path)
    if path.suffix.lower() in NUMPY:
        array = as_batch(pick(load_arrays(path), ("image",), path), path, dims=2, any_channels=True)
        if len(array) != 1:
            raise BasisError(f"{path} holds {len(array)} images; one is needed here")
        return to_channels(as_floats(array[0], path), channels)
    return to_channels(as_floats(picture_pixels(open_picture(path, most)), path), channels)


def open_bytes(path: Path) -> Image.Image:
    """A picture of mode L or RGB: what is deeper than 8 bits is rounded."""
    return _rounded(open_picture(path), path)


def decode_bytes(data: bytes, name: Path) -> Image.Image:
    """`open_bytes` of the bytes of a picture's file, which errors call `name`."""
    return _rounded(_decode(io.BytesIO(data), name), name)


def plain_pixels(image: Image.Image) -> np.ndarray:
    """The values (c, h, w) of a picture in memory, upright and without alpha: uint8 or floats."""
    return picture_pixels(_plain_mode(ImageOps.exif_transpose(image), "the picture"))


def _rounded(image: Image.Image, path: Path) -> Image.Image:
    return Image.fromarray(as_bytes(np.asarray(image), path)) if image.mode == "F" else image


def open_picture(path: Path, most: int | None = None) -> Image.Image:
    """A picture decoded and upright, of mode L, RGB, or F.

    F is grey deeper than 8 bits, scaled to [0, 1]. A picture of more than `most` pixels is refused
    before it is decoded.
    """
    check_regular(path)
    return _decode(path, path, most)


def _decode(source: Path | BinaryIO, path: Path, most: int | None = None) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source, formats=FORMATS) as file, _quiet_decoder(file.format):
                if most is not None and file.width * file.height > most:
                    raise BasisError(
                        f"{path} has {file.width}x{file.height} pixels; at most "
                        f"{most / 1e6:g} megapixels are accepted here: cut it, or make it smaller"
                    )
                return _plain_mode(ImageOps.exif_transpose(file), path)
    except (BasisError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BasisError(
            f"{path} is larger than {Image.MAX_IMAGE_PIXELS} pixels, which is not accepted"
        ) from error
    except Exception as error:  # decoders raise anything on broken bytes
        raise BasisError(
            f"{path} is not an image that can be read ({type(error).__name__}); "
            f"accepted: {', '.join(suffix[1:] for suffix in PICTURES)}"
        ) from error


@contextmanager
def _quiet_decoder(kind: str | None) -> Iterator[None]:
    """Keeps libtiff from writing to stderr what is wrong with a file: an exception says so too.

    libtiff writes to the file descriptor itself, which belongs to the whole process: only one
    thread at a time redirects it, and only while a TIFF is decoded.
    """
    if kind != "TIFF":
        yield
        return
    with _REDIRECTING, ExitStack() as stack:
        try:
            sys.stderr.flush()
            kept = os.dup(2)
        except (AttributeError, OSError, ValueError):  # there is no stderr
            yield
            return
        stack.callback(os.close, kept)
        stack.callback(os.dup2, kept, 2)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield


def _plain_mode(image: Image.Image, path: Path | str) -> Image.Image:
    if image.mode == "F":
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)  # mode I has 32 bits, but 16-bit formats may come as it too
        if values.min() < 0 or values.max() > 65535:
            raise BasisError(
                f"{path} holds values from {values.min()} to {values.max()}; "
                "8 or 16 bits are accepted"
            )
        return Image.fromarray(values.astype(np.float32) / 65535)
    if image.mode in ("1", "L", "LA", "La"):
        return image.convert("L")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert("RGB")
