"""Single pictures: PNG, JPEG and the like, upright and without alpha."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from basis._errors import BasisError
from basis.data._arrays import SUFFIXES as ARRAY_SUFFIXES
from basis.data._arrays import load_arrays, pick
from basis.data._pixels import as_bytes, as_floats, as_nchw, check_channels, to_channels

SUFFIXES = (
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


def read_image(path: str | Path, *, channels: int | None = None) -> Tensor:
    """One picture as float32 (c, h, w).

    Image files come out in [0, 1], grey with one channel and colour with three; 16-bit grey keeps its
    precision. Alpha is dropped, palettes are resolved, the EXIF orientation is applied. An .npy or .npz
    (array `image`, or the only one) comes out as it is if float, since it may be a mixture beyond 1, and
    divided by 255 if uint8. `channels` 1 or 3 converts.
    """
    check_channels(channels)
    path = Path(path)
    if path.suffix.lower() in ARRAY_SUFFIXES:
        array = as_nchw(pick(load_arrays(path), ("image",), path), path, any_channels=True)
        if len(array) != 1:
            raise BasisError(f"{path} holds {len(array)} images; one is needed here")
        return to_channels(as_floats(array[0], path), channels)
    pixels = np.array(open_picture(path))
    return to_channels(as_floats(_channels_first(pixels), path), channels)


def picture_bytes(image: Image.Image, path: Path) -> Tensor:
    """uint8 (c, h, w) of an opened picture."""
    return torch.from_numpy(as_bytes(_channels_first(np.array(image)), path))


def open_picture(path: Path) -> Image.Image:
    """A picture decoded and upright, of mode L, RGB, or F (grey deeper than 8 bits, scaled to [0, 1])."""
    if not path.is_file():
        raise BasisError(f"there is no file {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                return _plain_mode(ImageOps.exif_transpose(file))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BasisError(
            f"{path} is larger than {Image.MAX_IMAGE_PIXELS} pixels, which is not accepted"
        ) from error
    except Exception as error:  # decoders raise anything on broken bytes
        raise BasisError(
            f"{path} is not an image that can be read ({type(error).__name__}); "
            f"accepted: {', '.join(suffix[1:] for suffix in SUFFIXES)}"
        ) from error


def _plain_mode(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        return image.copy()
    if image.mode.startswith("I"):  # 16 bits; some formats hand them out as 32
        return Image.fromarray(np.asarray(image).astype(np.float32) / 65535)
    if image.mode in ("1", "L", "LA", "La"):
        return image.convert("L")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert("RGB")


def _channels_first(pixels: np.ndarray) -> np.ndarray:
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
