"""Pictures and folders of pictures."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_regular
from basis.signals.arrays import (
    NUMPY,
    as_batch,
    as_bytes,
    as_floats,
    check_channels,
    load_arrays,
    pick,
    picture_pixels,
    square,
    to_channels,
)
from basis.signals.places import Split

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


PICTURES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".webp",
    ".tif",
    ".tiff",
    ".pgm",
    ".ppm",
    ".pbm",
    ".pnm",
)
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that files of these endings may have, whatever their ending says: left to itself
Pillow takes a file for PostScript by its first bytes, and hands it to another program to run.
"""
SPLITS = ("train", "val", "test")


def split_folder(folder: Path, split: Split) -> Path:
    """The sub-folder of a split: `train`, or `test` else `val`; the folder itself without any."""
    present = [name for name in SPLITS if (folder / name).is_dir()]
    if not present:
        return folder
    for name in ("train",) if split == "train" else ("test", "val"):
        if name in present:
            return folder / name
    raise BasisError(
        f"{folder} has no {split} images: of train, val and test it holds {' and '.join(present)}"
    )


def find_pictures(folder: Path) -> list[Path]:
    """Image files below a folder, sorted; hidden ones are left out."""
    found: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        # links to folders are common in data sets, and may lead in circles
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(here, name)
            for name in files
            if name.lower().endswith(PICTURES) and not name.startswith(".")
        ]
    return sorted(found)


def read_folder(
    folder: Path, split: Split, *, size: int | None = None, channels: int | None = None
) -> tuple[Tensor, Tensor | None, tuple[str, ...] | None]:
    """Images (n, c, h, w), labels and classes of the pictures in a folder, sorted by path.

    Where every picture lies in a sub-folder, the first-level sub-folders are the classes. Grey and
    colour mixed come out as colour.
    """
    folder = split_folder(folder, split)
    paths = [path for path in find_pictures(folder) if not _is_overview(path)]
    if not paths:
        raise BasisError(
            f"{folder} holds no images; accepted: files ending in {', '.join(PICTURES)}"
        )
    stacked = stack_pictures(((path, open_bytes(path)) for path in paths), size, channels)

    parents = [path.relative_to(folder).parts[:-1] for path in paths]
    if not all(parents):
        return stacked, None, None
    classes = tuple(sorted({parts[0] for parts in parents}))
    labels = torch.tensor([classes.index(parts[0]) for parts in parents], dtype=torch.int64)
    return stacked, labels, classes


def _is_overview(path: Path) -> bool:
    """Whether a picture is a panel that `separate`, `colorize` or `sample` wrote by a record."""
    stem, dash, kind = path.stem.rpartition("-")
    return kind in ("panel", "states", "samples") and (
        path.with_name(f"{stem}{dash}run.json").is_file()
    )


def stack_pictures(
    pictures: Iterable[tuple[Path, Image.Image]], size: int | None, channels: int | None
) -> Tensor:
    """Named pictures as (n, c, h, w): cropped and scaled to `size`, or of one size already."""
    images: list[Tensor] = []
    first = Path()
    for path, picture in pictures:
        if channels is not None:
            picture = picture.convert("L" if channels == 1 else "RGB")
        if size is not None:
            picture = square(picture, size)
        image = torch.from_numpy(picture_pixels(picture))
        first = first if images else path
        if images and image.shape[1:] != images[0].shape[1:]:
            raise BasisError(
                f"{path} is {_size(image)} pixels and {first} is {_size(images[0])}; "
                "give a size (--size) to crop and resize all to"
            )
        images.append(image)
    most = max(len(image) for image in images)
    return torch.stack([to_channels(image, most) for image in images])


def _size(image: Tensor) -> str:
    return f"{image.shape[-1]}x{image.shape[-2]}"
