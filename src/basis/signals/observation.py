"""Observations from files, pictures and arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from basis.errors import BasisError
from basis.files import whole_file
from basis.signals.arrays import (
    CHANNELS,
    NUMPY,
    as_batch,
    as_floats,
    load_arrays,
    pick,
    to_channels,
)
from basis.signals.pictures import plain_pixels, read_image


@dataclass(frozen=True, eq=False)
class MixtureFile:
    """Observed mixtures, with the sources and weights where they are known.

    Signals have any number of axes and any range of values. Sources may have other channels than
    the mixture (a grey mixture of colour images).
    """

    mixture: Tensor = field(repr=False)
    """float32 (n, c, *size)"""
    sources: Tensor | None = field(default=None, repr=False)
    """float32 (n, k, C, *size), or None"""
    alphas: Tensor | None = None
    """float32 (k,), or None"""

    def __repr__(self) -> str:
        count, *shape = self.mixture.shape
        alphas = "" if self.alphas is None else f", alphas {self.alphas.tolist()}"
        truth = "" if self.sources is None else f", with {self.sources.shape[1]} sources"
        return f"MixtureFile({count} of {'x'.join(map(str, shape))}{alphas}{truth})"

    def __post_init__(self) -> None:
        if not _is_float(self.mixture) or self.mixture.ndim < 3:
            raise BasisError("mixture must be a float tensor (n, c, *size) of at least 3 axes")
        axes = {"mixture": self.mixture.ndim, "sources": self.mixture.ndim + 1, "alphas": 1}
        for name, count in axes.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not _is_float(value) or value.ndim != count:
                raise BasisError(f"{name} must be a float tensor of {count} axes")
            if not value.isfinite().all():
                raise BasisError(f"{name} holds NaN or infinite values; finite ones are accepted")
        mixture, sources, alphas = self.mixture, self.sources, self.alphas
        if sources is not None and (
            sources.shape[0] != mixture.shape[0] or sources.shape[3:] != mixture.shape[2:]
        ):
            raise BasisError(
                f"sources of shape {tuple(sources.shape)} do not fit mixtures of shape "
                f"{tuple(mixture.shape)}; (n, k, C, *size) is accepted for (n, c, *size)"
            )
        if sources is not None and alphas is not None and len(alphas) != sources.shape[1]:
            raise BasisError(
                f"there are {len(alphas)} alphas and {sources.shape[1]} sources; "
                "one for each is needed"
            )


def read_array(path: str | Path, *, dims: int | None = None) -> Tensor:
    """The mixtures in an .npy, or in an .npz under `mixture`, as float32 (n, c, *size).

    Floats are as they are, of any range; uint8 is divided by 255.

    Args:
        path: The file.
        dims: The axes of a signal's size (`len(prior.shape) - 1`): 2 for pictures, 1 for sound.
            Without it the array's shape decides, as in `load_images`; pictures (n, c, h, w) may
            have any number of channels.
    """
    path = Path(path)
    _check_suffix(path, NUMPY)
    return _mixture(load_arrays(path), path, dims)


def read_mixture(
    path: str | Path, *, dims: int | None = None, most: int | None = None
) -> MixtureFile:
    """Mixtures from an image file (one of them), an .npy, or an .npz.

    An .npz may hold `mixture` with `sources` (n, k, C, *size) and `alphas` (k,), or one array of
    any name. `dims` is that of `read_array`, `most` that of `read_image`.
    """
    path = Path(path)
    if path.suffix.lower() not in NUMPY:
        return MixtureFile(read_image(path, most=most)[None])
    arrays = load_arrays(path)
    mixture = _mixture(arrays, path, dims)
    sources, alphas = (
        as_floats(arrays[key], path) if key in arrays else None for key in ("sources", "alphas")
    )
    try:
        return MixtureFile(mixture, sources, alphas)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def write_mixture(path: str | Path, mixture: MixtureFile) -> None:
    """Writes mixtures, whole or not at all, as the path's ending says.

    An .npz keeps everything and is read back exactly; an .npy keeps the mixtures alone; a .png
    keeps one mixture with values in [0, 1], in 8 bits.
    """
    path = Path(path)
    _check_suffix(path, (".npz", ".npy", ".png"))
    if path.suffix.lower() == ".png":
        return _write_picture(path, mixture.mixture)
    if path.suffix.lower() == ".npy":
        with whole_file(path) as temporary, open(temporary, "wb") as file:
            np.save(file, mixture.mixture.detach().to("cpu", torch.float32).numpy())
        return None
    arrays = {
        name: value.detach().to("cpu", torch.float32).numpy()
        for name in ("mixture", "sources", "alphas")
        if (value := getattr(mixture, name)) is not None
    }
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    return None


def _write_picture(path: Path, mixtures: Tensor) -> None:
    from PIL import Image

    if mixtures.ndim != 4 or len(mixtures) != 1 or mixtures.shape[1] not in CHANNELS:
        raise BasisError(f"{path}: a picture holds one grey or colour mixture; use .npz for others")
    low, high = mixtures.min().item(), mixtures.max().item()
    if low < 0 or high > 1 + 1e-6:
        raise BasisError(
            f"{path}: a picture holds values from 0 to 1, this mixture has {low:.2f} to "
            f"{high:.2f}; use .npz, or alphas of 0 and more that sum to at most 1"
        )
    pixels = (mixtures[0] * 255).round().to("cpu", torch.uint8).movedim(0, -1).squeeze(-1)
    with whole_file(path) as temporary:
        Image.fromarray(pixels.contiguous().numpy()).save(temporary)


def _mixture(arrays: dict[str, np.ndarray], path: Path, dims: int | None) -> Tensor:
    array = pick(arrays, ("mixture",), path)
    if "sources" in arrays and arrays["sources"].ndim == array.ndim + 1:
        return as_floats(array, path)  # one axis more for the sources: the axes are (n, c, *size)
    return as_floats(as_batch(array, path, dims=dims, any_channels=True), path)


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _check_suffix(path: Path, accepted: tuple[str, ...]) -> None:
    if path.suffix.lower() not in accepted:
        raise BasisError(f"{path} must end in {' or '.join(accepted)}")


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
