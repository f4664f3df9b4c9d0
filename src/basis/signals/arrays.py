"""NumPy files, and arrays as signals."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_fits_memory, check_regular, reading

NUMPY = (".npy", ".npz")
_NAMED = 8
"""Arrays of a file that an error names."""


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; the one of an .npy under the name ''."""
    check_regular(path)
    with reading(
        path, "a NumPy file", "accepted: .npy or .npz of numbers, without pickled objects"
    ):
        _check_sizes(path)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            arrays = {key: loaded[key] for key in loaded.files}
    # np.load hands out members that are not arrays as raw bytes
    strays = [key for key, value in arrays.items() if not isinstance(value, np.ndarray)]
    if strays or not arrays:
        raise BasisError(f"{path} holds {_listed(strays) or 'nothing'} instead of arrays")
    return arrays


def _check_sizes(path: Path) -> None:
    """Refuses arrays larger than the bytes they are stored in, or than memory, before any is made.

    A compressed file of a few kilobytes can announce, and hold, any number of zeros.
    """
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            _check_header(file, path.stat().st_size)
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_fits_memory(2 * sum(member.file_size for member in members), path)
        for member in members:
            with archive.open(member) as file:
                _check_header(file, member.file_size)


def _check_header(file: IO[bytes], size: int) -> None:
    """Compares what the header of an .npy announces with the bytes there are."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        return  # no array: `np.load` says so, or hands it out as bytes
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects")
    count: int = math.prod(int(side) for side in shape)
    if any(side < 0 for side in shape) or count * dtype.itemsize > size:
        raise ValueError(f"it announces shape {shape} of {dtype}, which its {size} bytes are not")
    if dtype.itemsize == 0 and count:
        raise ValueError(f"its values are {dtype}, which have no size")


def pick(arrays: dict[str, np.ndarray], keys: Iterable[str], path: Path) -> np.ndarray:
    """The array under the first of `keys` that is there, else the only one."""
    keys = tuple(keys)
    for key in keys:
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise BasisError(
        f"{path} holds arrays named {_listed(sorted(arrays))}; "
        f"one named {' or '.join(keys)} is needed, or a single array of any name"
    )


def _listed(names: list[str]) -> str:
    """The first few of the names, and how many more there are."""
    shown = ", ".join(name if len(name) <= 40 else f"{name[:37]}..." for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


CHANNELS = (1, 3)
"""Channels of a picture."""

SOUND_CHANNELS = (1, 2)
"""Channels of a signal of one axis; pictures of such a height are not expected."""


def as_batch(
    array: np.ndarray, path: Path | str, *, dims: int | None = None, any_channels: bool = False
) -> np.ndarray:
    """Brings an array of signals to (n, channels, *size).

    Args:
        array: The array of a file.
        path: The file's name, for errors.
        dims: The axes of a signal's size, where they are known: 2 for pictures, 1 for sound.
        any_channels: Whether pictures may have other channels than 1 or 3.

    With `dims` other than 2 the axes are (n, channels, *size), (channels, *size) or (*size).
    Without it, (n, 1, length), (n, 2, length) and everything of five or more axes are
    (n, channels, *size) as they are, and the rest is pictures. For these the first rule that fits
    decides; c is 1 or 3:

    - (h, w): one grey image;
    - (c, h, w), then (h, w, c): one image; so (3, h, w) is one colour image, and three grey ones
      are (3, 1, h, w);
    - (n, h, w): grey images;
    - (n, c, h, w), then (n, h, w, c): images. With `any_channels`, what is left is (n, c, h, w).
    """
    shape = array.shape
    if 0 in shape:
        raise BasisError(
            f"{path} holds an empty array of shape {shape}; at least one image is needed"
        )
    if dims is None and (len(shape) > 4 or (len(shape) == 3 and shape[1] in SOUND_CHANNELS)):
        return array
    if dims is not None and dims != 2:
        if not 0 <= dims + 2 - len(shape) <= 2:
            raise BasisError(
                f"{path} holds an array of shape {shape}; signals of {dims} axes are accepted as "
                "(n, channels, *size), (channels, *size) or (*size)"
            )
        return array[(None,) * (dims + 2 - len(shape))]
    if len(shape) == 2:
        return array[None, None]
    if len(shape) == 3:
        if shape[0] in CHANNELS:
            return array[None]
        if shape[2] in CHANNELS:
            return array.transpose(2, 0, 1)[None]
        return array[:, None]
    if len(shape) == 4:
        if shape[1] in CHANNELS:
            return array
        if shape[3] in CHANNELS:
            return array.transpose(0, 3, 1, 2)
        if any_channels:
            return array
    raise BasisError(
        f"{path} holds an array of shape {shape}; accepted: (h, w), (c, h, w), (h, w, c), "
        "(n, h, w), (n, c, h, w), (n, h, w, c) with 1 or 3 channels c, (n, 1, length) and "
        "(n, 2, length) for sound, and five or more axes as (n, channels, *size)"
    )


def to_batch(values: Tensor, where: str, shape: tuple[int, ...] | None = None) -> Tensor:
    """Brings an array of signals to (batch, channels, *size).

    Args:
        values: The array.
        where: What errors call it.
        shape: The shape of one signal, (channels, *size), where known: an array of it is one
            signal, with one more axis a batch, and (*size) has one channel. Other pictures, and all
            arrays where no shape is known, follow the rules of `as_batch`.
    """
    have = tuple(values.shape)
    if shape is None:
        return _by_axes(values, where)
    if have[1:] == shape:
        return values
    if have == shape:
        return values[None]
    size = shape[1:]
    if shape[0] == 1 and have == size:
        return values[None, None]
    if shape[0] == 1 and size and have[1:] == size:
        if len(size) == 2 and have[0] == 3:
            rest = ", ".join(map(str, size))
            raise BasisError(
                f"an array of shape (3, {rest}) is one color picture or three grey ones: give "
                f"(1, 3, {rest}) or (3, 1, {rest})"
            )
        return values[:, None]
    if len(shape) == 3:
        return _by_axes(values, where)
    missing = len(shape) + 1 - values.ndim
    return values[(None,) * missing] if 0 <= missing <= 2 else values


def _by_axes(values: Tensor, where: str) -> Tensor:
    """(batch, channels, *size) by the number of axes and which of them look like channels."""
    have = tuple(values.shape)
    if len(have) > 4 or (len(have) == 3 and have[1] in SOUND_CHANNELS):
        return values
    if len(have) == 2:
        return values[None, None]
    if len(have) == 3:
        if have[0] in CHANNELS:
            return values[None]
        return values.movedim(-1, 0)[None] if have[2] in CHANNELS else values[:, None]
    if len(have) == 4:
        last = have[1] not in CHANNELS and have[3] in CHANNELS
        return values.movedim(-1, 1) if last else values
    raise BasisError(f"{where} has shape {have}; (channels, *size) is accepted, or a batch of it")


def as_floats(array: np.ndarray, path: Path | str) -> Tensor:
    """float32 of bytes (divided by 255) or floats (as they are); NaN and infinities are refused."""
    if array.dtype == np.uint8:
        return torch.from_numpy(array.astype(np.float32, order="C")).div_(255)
    if not np.issubdtype(array.dtype, np.floating):
        raise BasisError(f"{path} holds {array.dtype} values; uint8 or floats are accepted")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite and is refused below
        floats = array.astype(np.float32, order="C")
    if not np.isfinite(floats).all():
        raise BasisError(f"{path} holds NaN or infinite values; finite ones are accepted")
    return torch.from_numpy(floats)


def as_bytes(array: np.ndarray, path: Path | str) -> np.ndarray:
    """uint8 as it is; floats in [0, 1] rounded to the nearest of 256 levels; nothing else."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise BasisError(
            f"{path} holds {array.dtype} values; uint8 or floats in [0, 1] are accepted"
        )
    if not (array.min() >= 0 and array.max() <= 1):  # written so that NaN fails too
        raise BasisError(
            f"{path} holds floats from {array.min():g} to {array.max():g}; "
            "uint8 or floats in [0, 1] are accepted"
        )
    return np.rint(array.astype(np.float32, order="C") * 255).astype(np.uint8)


def check_channels(channels: int | None) -> None:
    if channels is not None and channels not in CHANNELS:
        raise BasisError(f"channels {channels!r} is not accepted; 1 (grey) or 3 (colour) is")


def check_size(size: int | None) -> None:
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise BasisError(f"size {size!r} is not accepted; a whole number of pixels from 1 is")


def to_channels(x: Tensor, channels: int | None) -> Tensor:
    """(..., c, h, w) with `channels` channels: grey repeated, or colour to luma.

    Luma is that of ITU-R 601, rounded as Pillow does.
    """
    check_channels(channels)
    have = x.shape[-3]
    if channels is None or channels == have:
        return x
    if have == 1:
        return x.repeat_interleave(channels, dim=-3)
    if have != 3:
        raise BasisError(
            f"images of {have} channels cannot be made {channels}; 1 or 3 are accepted"
        )
    red, green, blue = (x.narrow(-3, i, 1) for i in range(3))
    if x.dtype == torch.uint8:
        grey = (red.int() * 19595 + green.int() * 38470 + blue.int() * 7471 + 0x8000) >> 16
        return grey.byte()
    return 0.299 * red + 0.587 * green + 0.114 * blue


def square(image: Image.Image, size: int) -> Image.Image:
    """The central square of a picture, resized to `size` with antialiasing."""
    if image.size == (size, size):
        return image
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.LANCZOS, box=box)


def resize(images: Tensor, size: int | None) -> Tensor:
    """`square` for a uint8 tensor (n, c, h, w) of 1 or 3 channels."""
    if size is None or tuple(images.shape[-2:]) == (size, size):
        return images
    out = torch.empty(*images.shape[:2], size, size, dtype=torch.uint8)
    for i, image in enumerate(images):
        pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0).contiguous()
        out[i] = torch.from_numpy(picture_pixels(square(Image.fromarray(pixels.numpy()), size)))
    return out


def picture_pixels(image: Image.Image) -> np.ndarray:
    """The values (c, h, w) of a grey or RGB picture."""
    values = np.array(image)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)
