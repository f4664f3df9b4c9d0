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

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_regular
from basis.signals.arrays import as_bytes, as_floats, as_tensor, to_channels
from basis.signals.image_set import Split
from basis.signals.observation import MAX_PIXELS, Observation, reader

PICTURES = (
    ".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm", ".pbm",
    ".pnm",
)  # fmt: skip
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that files with these endings may have. Without this list Pillow would recognize
PostScript by its first bytes, whatever the name, and run another program to decode it."""
SPLITS = ("train", "val", "test")

_stderr_lock = threading.Lock()


@reader(*PICTURES)
def read_picture(path: Path, max_pixels: int | None = MAX_PIXELS) -> Observation:
    """Reads one picture as floats in [0, 1], grey with one channel and color with three.

    16-bit grey keeps its precision. Alpha is dropped, palettes are resolved, the EXIF orientation
    is applied. A picture of more than `max_pixels` pixels is rejected before it is decoded.
    """
    return Observation(picture_floats(open_picture(path, max_pixels), path), batched=False)


def picture_floats(image: Image.Image, where: object) -> Tensor:
    """The values of a picture of mode L, RGB or F, (channels, height, width) in [0, 1]."""
    return as_floats(picture_tensor(image), where)


def picture_tensor(image: Image.Image) -> Tensor:
    """The values of a picture of mode L, RGB or F, (channels, height, width)."""
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1)


def open_8_bit(path: Path, data: bytes | None = None) -> Image.Image:
    """As `open_picture`, of mode L or RGB: deeper pictures are rounded to 8 bits."""
    image = open_picture(path, data=data)
    if image.mode != "F":
        return image
    return Image.fromarray(as_bytes(as_tensor(np.asarray(image), path), path).numpy())


def open_picture(
    path: Path, max_pixels: int | None = None, *, data: bytes | None = None
) -> Image.Image:
    """A picture, decoded and upright, of mode L, RGB, or F (deeper grey, scaled to [0, 1]).

    Args:
        path: The file.
        max_pixels: Larger pictures are rejected before they are decoded.
        data: The bytes of the file if they are in memory; `path` is then used in errors only.
    """
    if data is None:
        check_regular(path)
    source = path if data is None else io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source, formats=FORMATS) as file, _quiet_decoder(file.format):
                if max_pixels is not None and file.width * file.height > max_pixels:
                    raise BasisError(
                        f"{path} has {file.width}x{file.height} pixels; at most "
                        f"{max_pixels / 1e6:g} megapixels are accepted: crop it or make it smaller"
                    )
                return plain_mode(file, path)
    except (BasisError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BasisError(
            f"{path} has more than {Image.MAX_IMAGE_PIXELS} pixels, which is not accepted"
        ) from error
    except Exception as error:  # decoders raise anything on broken bytes
        raise BasisError(
            f"{path} is not a picture that can be read ({type(error).__name__}); "
            f"accepted: {', '.join(suffix[1:] for suffix in PICTURES)}"
        ) from error


def plain_mode(image: Image.Image, where: object) -> Image.Image:
    """An upright picture of mode L, RGB or F, without alpha."""
    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)  # mode I has 32 bits, but 16-bit formats may have it too
        if values.min() < 0 or values.max() > 65535:
            raise BasisError(
                f"{where} contains values from {values.min()} to {values.max()}; "
                "8 or 16 bits are accepted"
            )
        return Image.fromarray(values.astype(np.float32) / 65535)
    if image.mode in ("1", "L", "LA", "La"):
        return image.convert("L")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert("RGB")


def square(image: Image.Image, size: int) -> Image.Image:
    """The central square of a picture, resized to `size` with antialiasing."""
    if image.size == (size, size):
        return image
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.LANCZOS, box=box)


def squares(images: Tensor, size: int) -> Tensor:
    """`square` of uint8 pictures (n, c, h, w) with 1 or 3 channels."""
    if tuple(images.shape[-2:]) == (size, size):
        return images
    pixels = images.movedim(1, -1).squeeze(-1).contiguous().numpy()
    return torch.stack([picture_tensor(square(Image.fromarray(one), size)) for one in pixels])


@contextmanager
def _quiet_decoder(kind: str | None) -> Iterator[None]:
    """Keeps libtiff from writing to stderr what an exception says as well.

    libtiff writes to the file descriptor itself, which belongs to the whole process: only one
    thread at a time redirects it, and only while a TIFF is decoded.
    """
    if kind != "TIFF":
        yield
        return
    with _stderr_lock, ExitStack() as stack:
        try:
            sys.stderr.flush()
            saved = os.dup(2)
        except (AttributeError, OSError, ValueError):  # there is no stderr
            yield
            return
        stack.callback(os.close, saved)
        stack.callback(os.dup2, saved, 2)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield


# Folders of pictures.


def find_pictures(folder: Path) -> list[Path]:
    """Picture files below a folder, sorted, without hidden ones."""
    found: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        # links to folders are common in data sets, and may form circles
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

    If every picture is in a sub-folder, the first-level sub-folders are the classes. Grey and color
    mixed become color.
    """
    folder = _split_folder(folder, split)
    paths = [path for path in find_pictures(folder) if not _is_panel(path)]
    if not paths:
        raise BasisError(
            f"{folder} contains no images; accepted: files ending in {', '.join(PICTURES)}"
        )
    stacked = stack_pictures(((path, open_8_bit(path)) for path in paths), size, channels)

    parents = [path.relative_to(folder).parts[:-1] for path in paths]
    if not all(parents):
        return stacked, None, None
    classes = tuple(sorted({parts[0] for parts in parents}))
    labels = torch.tensor([classes.index(parts[0]) for parts in parents], dtype=torch.int64)
    return stacked, labels, classes


def stack_pictures(
    pictures: Iterable[tuple[Path, Image.Image]], size: int | None, channels: int | None
) -> Tensor:
    """Named pictures as uint8 (n, c, h, w): cropped and resized to `size`, or all of one size."""
    images: list[Tensor] = []
    first = Path()
    for path, picture in pictures:
        if channels is not None:
            picture = picture.convert("L" if channels == 1 else "RGB")
        if size is not None:
            picture = square(picture, size)
        image = picture_tensor(picture)
        first = first if images else path
        if images and image.shape[1:] != images[0].shape[1:]:
            have, need = (f"{x.shape[2]}x{x.shape[1]}" for x in (image, images[0]))
            raise BasisError(
                f"{path} is {have} pixels and {first} is {need}; "
                "give a size (--size) to crop and resize all to"
            )
        images.append(image)
    most = max(len(image) for image in images)
    return torch.stack([to_channels(image, most) for image in images])


def _split_folder(folder: Path, split: Split) -> Path:
    """The sub-folder of a split: `train`, or `test` else `val`; the folder itself without any."""
    present = [name for name in SPLITS if (folder / name).is_dir()]
    for name in ("train",) if split == "train" else ("test", "val"):
        if name in present:
            return folder / name
    if not present:
        return folder
    raise BasisError(f"{folder} has no {split} images, only {' and '.join(present)}")


def _is_panel(path: Path) -> bool:
    """Whether a picture is a panel that `separate`, `colorize` or `sample` wrote."""
    stem, dash, kind = path.stem.rpartition("-")
    return kind in ("panel", "states", "samples") and (
        path.with_name(f"{stem}{dash}run.json").is_file()
    )
