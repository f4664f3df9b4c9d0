"""What was observed, as people have it: a file, a picture, an array of pixels or a tensor."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from basis._errors import BasisError
from basis.data._mixture import MixtureFile, read_mixture
from basis.data._pictures import plain_pixels
from basis.data._pixels import CHANNELS, as_floats, to_channels

Observed = Tensor | np.ndarray | Image.Image | MixtureFile | str | os.PathLike[str]
"""What a mixture is given as."""

_ACCEPTED = "a path, a picture, a numpy array or a tensor (or a list of them)"
_SAME = 1e-6  # channels that differ by less are one grey channel


def open_mixtures(
    given: Any, dims: int | None = None, most: int | None = None
) -> tuple[list[Any], list[float] | None]:
    """The parts of what was given, its files read, and the weights that files bring.

    Args:
        given: As `read_observation` takes it.
        dims: The axes of a signal's size in files, as `read_mixture` takes it.
        most: The pixels that a picture in a file may have.
    """
    parts = list(given) if isinstance(given, list | tuple) else [given]
    if not parts or any(isinstance(part, list | tuple | int | float) for part in parts):
        raise BasisError(f"the mixture must be {_ACCEPTED}, not {_name(given)}")
    parts = [
        read_mixture(Path(part), dims=dims, most=most)
        if isinstance(part, str | os.PathLike)
        else part
        for part in parts
    ]
    known = [part.alphas for part in parts if isinstance(part, MixtureFile)]
    brought = [alphas.tolist() for alphas in known if alphas is not None]
    if any(alphas != brought[0] for alphas in brought):
        raise BasisError("these files were mixed with different alphas; separate them one by one")
    return parts, brought[0] if brought else None


def read_observation(
    given: Observed | Sequence[Observed], wanted: tuple[int, ...] | None = None, **options: Any
) -> Tensor:
    """What was observed as (batch, channels, *size), float32 or float64.

    Args:
        given: The path of a picture, .npy or .npz; a `MixtureFile`; a PIL image; a numpy array or
            tensor; or a list of these. 8-bit values (uint8) stand for [0, 1], floats are as they
            are.
        wanted: The shape of one observation, (channels, *size), where it is known. An array of it
            is one observation, with one axis more a batch; (*size) has one channel; pictures may
            have their channels last. An array that can be read in two ways is refused.
        options: Of `fit_observation`.
    """
    parts, _ = open_mixtures(given, None if wanted is None else len(wanted) - 1)
    values = [_read(part, wanted, options.get("low"), options.get("high")) for part in parts]
    if wanted is not None:
        values = [fit_observation(one, wanted, **options) for one in values]
    shapes = {tuple(one.shape[1:]) for one in values}
    if len(shapes) > 1:
        told = " and ".join(str(shape) for shape in sorted(shapes))
        raise BasisError(f"mixtures of one batch must have one shape, not {told}")
    return values[0] if len(values) == 1 else torch.cat(values)


def _read(
    given: Any, wanted: tuple[int, ...] | None, low: float | None, high: float | None
) -> Tensor:
    if isinstance(given, MixtureFile):
        return given.mixture
    if isinstance(given, Image.Image):
        return as_floats(plain_pixels(given), "the picture")[None]
    if isinstance(given, np.ndarray):
        given = from_numpy(given)
    if not isinstance(given, Tensor):
        raise BasisError(f"the mixture must be {_ACCEPTED}, not {_name(given)}")
    if given.dtype == torch.uint8 and None not in (low, high) and (low, high) != (0, 1):
        raise BasisError(
            f"8-bit values stand for 0 to 1, and this prior's go from {low:g} to {high:g}; give "
            "the mixture as floats"
        )
    values = _batch(_floats(given), wanted)
    if not values.numel():
        raise BasisError("the batch of mixtures is empty; give at least one")
    if not torch.isfinite(values).all():
        raise BasisError("the mixture holds NaN or infinite values; every value must be a number")
    return values


def fit_observation(
    m: Tensor,
    wanted: tuple[int, ...],
    *,
    convert: bool = False,
    invert: bool = False,
    resize: bool = False,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Tensor:
    """Observations of pictures brought to what is wanted, as far as the options ask for it.

    A grey picture that was saved as RGB, all channels alike, becomes grey without being asked.

    Args:
        m: (batch, channels, *size).
        wanted: (channels, *size) of one observation.
        convert: Colour becomes grey (ITU-R 601 luma), grey becomes colour (channels alike).
        invert: Light and dark exchanged: low + high - m.
        resize: The middle part of the wanted proportions, resized. Like `convert` this is linear,
            so that a mixture becomes the mixture of sources that were treated in the same way.
        low, high: The range of a source's values.
    """
    if m.ndim == 4 and m.shape[1] == 3 and wanted[0] == 1 and not convert:
        alike = (m - m[:, :1]).abs().amax() <= _SAME
        m = m[:, :1] if alike else m
    pictures = m.ndim == 4 and len(wanted) == 3
    if (convert or resize) and not pictures:
        raise BasisError(f"convert and resize take pictures, not signals of shape {wanted}")
    if convert:
        m = to_channels(m, wanted[0])
    if resize and tuple(m.shape[2:]) != wanted[1:]:
        m = _resize(m, wanted[1], wanted[2])
    if invert:
        if low is None or high is None:
            raise BasisError("invert exchanges light and dark, which this prior's values have not")
        least, most = m.min().item(), m.max().item()
        if least < low - _SAME or most > high + _SAME:
            raise BasisError(
                f"invert takes values from {low:g} to {high:g}; this mixture has {least:g} to "
                f"{most:g}"
            )
        m = low + high - m
    return m


def from_numpy(array: np.ndarray) -> Tensor:
    """The tensor of an array of any shape, strides and byte order; a copy only where needed."""
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise BasisError(f"the array holds {array.dtype} values; uint8 or floats are accepted")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in native.strides) or not native.flags.writeable:
        native = native.copy()
    if native.dtype == np.longdouble:
        native = native.astype(np.float64)
    return torch.from_numpy(native)


def _floats(values: Tensor) -> Tensor:
    """float32 or float64; 8-bit values as shares of 255."""
    if values.dtype == torch.uint8:
        return values.float().div_(255)
    if not values.is_floating_point():
        raise BasisError(
            f"the mixture holds {str(values.dtype).removeprefix('torch.')} values; uint8 (8-bit "
            "pixels) or floats are accepted"
        )
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _batch(m: Tensor, wanted: tuple[int, ...] | None) -> Tensor:
    """(batch, channels, *size), by what is wanted."""
    if wanted is None or tuple(m.shape[1:]) == wanted:
        return m
    if tuple(m.shape) == wanted:
        return m[None]
    size = wanted[1:]
    if wanted[0] == 1 and tuple(m.shape) == size:
        return m[None, None]
    if wanted[0] == 1 and len(size) > 0 and tuple(m.shape[1:]) == size:
        if len(size) == 2 and len(m) == 3:
            rest = ", ".join(map(str, size))
            raise BasisError(
                f"an array (3, {rest}) is one colour picture or three grey ones: give "
                f"(1, 3, {rest}) or (3, 1, {rest})"
            )
        return m[:, None]
    if len(wanted) == 3 and 2 <= m.ndim <= 4 and m.numel():
        return _pictures(m)
    return m


def _pictures(m: Tensor) -> Tensor:
    """Pictures by the rules of files (`as_batch`), on whatever device they are."""
    if m.ndim == 2:
        return m[None, None]
    if m.ndim == 3:
        if m.shape[0] in CHANNELS:
            return m[None]
        return m.movedim(-1, 0)[None] if m.shape[2] in CHANNELS else m[:, None]
    last = m.shape[1] not in CHANNELS and m.shape[3] in CHANNELS
    return m.movedim(-1, 1) if last else m


def _resize(m: Tensor, height: int, width: int) -> Tensor:
    """The middle part of these proportions, resized without overshoot."""
    have_height, have_width = m.shape[2:]
    scale = min(have_height / height, have_width / width)
    cut_height = min(have_height, max(1, math.floor(height * scale + 0.5)))
    cut_width = min(have_width, max(1, math.floor(width * scale + 0.5)))
    top, left = (have_height - cut_height) // 2, (have_width - cut_width) // 2
    part = m[:, :, top : top + cut_height, left : left + cut_width]
    # Linear interpolation has no negative weights: no value leaves the range of the picture's.
    return F.interpolate(part, size=(height, width), mode="bilinear", antialias=True)


def _name(value: object) -> str:
    return type(value).__name__
