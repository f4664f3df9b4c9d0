"""Arrays as signals: their types, their axes, their channels and their size.

There is one rule for all arrays and tensors, whether they are separated, colorized, mixed, checked,
trained on or read from a file: `as_floats` for their values, `to_batch` for their axes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from basis.errors import BasisError

CHANNELS = (1, 3)
"""Channels of a picture."""
SOUND_CHANNELS = (1, 2)
"""Channels of a signal of one axis; pictures of such a height are not expected."""
_LONG = 4
"""Training data (n, a, b) is signals of a channels if b is more than this many times a."""
TYPES = "uint8 (pixels, 0 to 255 for 0 to 1), int16 (sound, -1 to 1) or floats are accepted"
"""The types of values, for error messages."""


def as_tensor(array: np.ndarray, where: object) -> Tensor:
    """The tensor of an array of any strides and byte order; a copy only where needed."""
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise BasisError(f"{where} contains {array.dtype} values; {TYPES}")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in native.strides) or not native.flags.writeable:
        native = native.copy()
    if native.dtype == np.longdouble:
        native = native.astype(np.float64)
    return torch.from_numpy(native)


def as_floats(values: Tensor, where: object, *, double: bool = False) -> Tensor:
    """The values of an array as floats; NaN and infinities are rejected.

    uint8 is divided by 255, as in pictures; int16 by 32768, as in sound; floats are unchanged.

    Args:
        values: Of any shape.
        where: What errors call the values.
        double: Whether float64 is kept; everything else becomes float32.
    """
    if values.dtype == torch.uint8:
        return values.float().div_(255)
    if values.dtype == torch.int16:
        return values.float().div_(32768)
    if not values.is_floating_point():
        kind = str(values.dtype).removeprefix("torch.")
        raise BasisError(f"{where} contains {kind} values; {TYPES}")
    if not (double and values.dtype == torch.float64):
        values = values.float()  # values beyond float32 become infinite
    if not values.isfinite().all():
        raise BasisError(f"{where} contains NaN or infinite values; finite ones are accepted")
    return values


def as_bytes(values: Tensor, where: object) -> Tensor:
    """uint8 unchanged; floats in [0, 1] rounded to the nearest of 256 levels."""
    if values.dtype == torch.uint8:
        return values.contiguous()
    if not values.is_floating_point():
        kind = str(values.dtype).removeprefix("torch.")
        raise BasisError(f"{where} contains {kind} values; uint8 or floats in [0, 1] are accepted")
    low, high = values.min().item(), values.max().item()
    if not (low >= 0 and high <= 1):  # also rejects NaN
        raise BasisError(
            f"{where} contains floats from {low:g} to {high:g}; uint8 or floats in [0, 1] are "
            "accepted"
        )
    return values.float().mul(255).round().to(torch.uint8).contiguous()


def to_batch(
    values: Tensor, where: object, shape: tuple[int, ...] | None = None, *, many: bool = False
) -> Tensor:
    """Brings an array of signals to (batch, channels, *size).

    The shape of the prior's signals, (channels, *size), decides where it is known:

    - (channels, *size) is one signal; with one more axis in front it is a batch;
    - the axis of channels may be missing if there is one channel;
    - pictures may have their channels last, and signals and pictures may have another size.

    Where no shape is known, or pictures have another size, the first rule that fits decides, where
    c is 1 or 3:

    - five or more axes, (n, 1, length) and (n, 2, length) are (batch, channels, *size);
    - (length), (1, length) and (2, length) are one signal;
    - (h, w) is a grey picture;
    - (c, h, w), then (h, w, c), is one picture: (3, h, w) is one color picture;
    - (n, h, w) are grey pictures;
    - (n, c, h, w), then (n, h, w, c), are pictures; everything else of four axes is
      (batch, channels, *size).

    Args:
        values: The array.
        where: What errors call it.
        shape: The shape of one signal, where known.
        many: Whether the first axis is the batch, as in training data. Then (n, length) has one
            channel, and (n, a, b) are grey pictures, or signals of a channels if a is at most 2 or
            less than a quarter of b.
    """
    have = tuple(values.shape)
    if not values.numel():
        raise BasisError(f"{where} is empty, with shape {have}; at least one signal is needed")
    if shape is not None:
        size = shape[1:]
        if have[1:] == shape:
            return values
        if have == shape and not many:
            return values[None]
        if shape[0] == 1 and have == size and not many:
            return values[None, None]
        if shape[0] == 1 and size and have[1:] == size:
            if len(size) == 2 and have[0] == 3 and not many:
                rest = ", ".join(map(str, size))
                raise BasisError(
                    f"an array of shape (3, {rest}) is one color picture or three grey ones: give "
                    f"(1, 3, {rest}) or (3, 1, {rest})"
                )
            return values[:, None]
        if len(size) != 2:
            if shape[0] == 1 and len(have) == len(shape) and have[0] != 1:
                return values[:, None]  # a batch of another size, without channels
            missing = len(shape) + 1 - values.ndim
            return values[(None,) * missing] if 0 <= missing <= 2 else values
    if len(have) == 4:
        last = have[1] not in CHANNELS and have[3] in CHANNELS
        return values.movedim(-1, 1) if last else values
    if many and len(have) in (2, 3):
        long = len(have) == 3 and (have[1] in SOUND_CHANNELS or have[2] > _LONG * have[1])
        return values if long else values[:, None]
    if len(have) > 4 or (shape is None and len(have) == 3 and have[1] in SOUND_CHANNELS):
        return values
    if len(have) == 3:
        if have[0] in CHANNELS:
            return values[None]
        return values.movedim(-1, 0)[None] if have[2] in CHANNELS else values[:, None]
    if len(have) == 2:
        return values[None] if shape is None and have[0] in SOUND_CHANNELS else values[None, None]
    if len(have) == 1 and shape is None:
        return values[None, None]
    raise BasisError(f"{where} has shape {have}; (channels, *size) is accepted, or a batch of it")


def to_channels(x: Tensor, channels: int | None) -> Tensor:
    """(..., c, h, w) with `channels` channels: grey repeated, or color as luma.

    Luma is that of ITU-R 601, rounded as Pillow does for uint8.
    """
    have = x.shape[-3]
    if channels is None or channels == have:
        return x
    if channels not in CHANNELS:
        raise BasisError(f"channels must be 1 (grey) or 3 (color), not {channels!r}")
    if have == 1:
        return x.repeat_interleave(channels, dim=-3)
    if have != 3:
        raise BasisError(f"pictures of {have} channels cannot be converted; 1 or 3 are accepted")
    red, green, blue = (x.narrow(-3, i, 1) for i in range(3))
    if x.dtype == torch.uint8:
        grey = (red.int() * 19595 + green.int() * 38470 + blue.int() * 7471 + 0x8000) >> 16
        return grey.byte()
    return 0.299 * red + 0.587 * green + 0.114 * blue


def crop_and_resize(x: Tensor, height: int, width: int) -> Tensor:
    """The central part of these proportions, resized without overshoot.

    Args:
        x: Floats, (batch, channels, height, width).
        height, width: The new size.
    """
    have_height, have_width = x.shape[2:]
    scale = min(have_height / height, have_width / width)
    cut_height = min(have_height, max(1, math.floor(height * scale + 0.5)))
    cut_width = min(have_width, max(1, math.floor(width * scale + 0.5)))
    top, left = (have_height - cut_height) // 2, (have_width - cut_width) // 2
    part = x[:, :, top : top + cut_height, left : left + cut_width]
    # Linear interpolation has no negative weights: no value leaves the range of the picture.
    return F.interpolate(part, size=(height, width), mode="bilinear", antialias=True)
