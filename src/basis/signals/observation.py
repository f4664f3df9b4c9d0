"""Observations from files, pictures and arrays."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from basis.errors import BasisError
from basis.files import check_regular, whole_file
from basis.signals.arrays import (
    CHANNELS,
    NUMPY,
    as_batch,
    as_floats,
    load_arrays,
    pick,
    picture_pixels,
    to_batch,
    to_channels,
)
from basis.signals.pictures import MOST_PIXELS, PICTURES, open_picture, plain_pixels, read_image


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


# ------------------------------------------------------------------------------------------------
# Observations: what is separated.

_ACCEPTED_SOURCES = "a path, a picture, a NumPy array, a tensor, an Observation or a list of these"


@dataclass(frozen=True, eq=False)
class Observation:
    """What was observed: one signal or a batch, with what is known about its origin.

    `read` makes observations from files, pictures and arrays.

    Attributes:
        values: Floats, channels first: (channels, *size), or (batch, channels, *size) for several.
            8-bit pixels are scaled to 0 to 1; floats are kept as they are.
        batched: Whether the first axis of `values` is the batch. None for an array without known
            axes, which are then decided by the shape of the prior.
        names: A name per item, such as the stem of its file.
        paths: The files that were read.
        alphas: The mixing coefficients that a mixture file contains, (sources,), or None.
        sources: The true sources that a mixture file contains,
            (batch, sources, channels, *size), or None.
        conversions: What was done to the values, in order: "grey", "color", "size 28x28", "invert".
        rate: Samples per second of a recording, or None.
        channels: The names of a recording's channels.
        units: The unit of a recording's values, or "".
    """

    values: Tensor = field(repr=False)
    batched: bool | None = None
    names: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    alphas: Tensor | None = None
    sources: Tensor | None = field(default=None, repr=False)
    conversions: tuple[str, ...] = ()
    rate: float | None = None
    channels: tuple[str, ...] = ()
    units: str = ""

    def __post_init__(self) -> None:
        for name in ("values", "alphas", "sources"):
            value = getattr(self, name)
            if value is None and name != "values":
                continue
            if not _is_float(value) or not value.isfinite().all():
                raise BasisError(f"{name} must be a tensor of finite floats")
        if self.alphas is not None and self.alphas.ndim != 1:
            raise BasisError(
                f"alphas have shape {tuple(self.alphas.shape)}; (sources,) is accepted"
            )
        if self.sources is None:
            return
        have, need = tuple(self.sources.shape), tuple(self.values.shape)
        if self.batched is not True or have[:1] + have[3:] != need[:1] + need[2:]:
            raise BasisError(
                f"sources of shape {have} do not fit values of shape {need}; (batch, sources, "
                "channels, *size) is accepted for (batch, channels, *size)"
            )
        if self.alphas is not None and len(self.alphas) != have[1]:
            raise BasisError(f"{len(self.alphas)} alphas for {have[1]} sources; give one for each")

    def __len__(self) -> int:
        """The number of items."""
        return len(self.values) if self.batched else 1

    def __repr__(self) -> str:
        parts = ["x".join(map(str, self.values.shape))]
        parts += [", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")]
        parts += [f"alphas {_numbers(self.alphas.tolist())}"] if self.alphas is not None else []
        parts += ["with sources"] if self.sources is not None else []
        parts += [f"{self.rate:g} Hz"] if self.rate is not None else []
        parts += [f"converted: {', '.join(self.conversions)}"] if self.conversions else []
        return f"Observation({'; '.join(part for part in parts if part)})"

    def save(self, path: str | Path) -> None:
        """Writes .npz (with sources and alphas, exactly), .npy (the values) or .png (8 bits)."""
        path = Path(path)
        _check_suffix(path, (".npz", ".npy", ".png"))
        if path.suffix.lower() == ".png":
            return _write_picture(path, self.values if self.batched else self.values[None])
        arrays = {"observation": self.values, "sources": self.sources, "alphas": self.alphas}
        saved = {
            name: value.detach().to("cpu", torch.float32).numpy()
            for name, value in arrays.items()
            if value is not None
        }
        with whole_file(path) as temporary, open(temporary, "wb") as file:
            if path.suffix.lower() == ".npy":
                np.save(file, saved["observation"])
            else:
                np.savez_compressed(file, **saved)
        return None


Source = Observation | Tensor | np.ndarray | Image.Image | str | os.PathLike[str]
"""What an observation is read from."""

Reader = Callable[..., Observation]
READERS: dict[str, Reader] = {}
"""What reads a file, by the ending of its name: called with the path and the options of `read`."""


def reader(*suffixes: str) -> Callable[[Reader], Reader]:
    """Registers the reader of a file format: a function of a path that returns an Observation.

    Keyword parameters of the function become options of `read` for files of this format. `read`
    adds names and paths.
    """

    def register(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(suffixes, function))
        return function

    return register


def read(
    source: Source | Sequence[Source],
    *,
    grey: bool = False,
    color: bool = False,
    invert: bool = False,
    size: int | tuple[int, int] | None = None,
    **options: Any,
) -> Observation:
    """Reads what is to be separated, and converts it where asked.

    Nothing is converted without being asked for. All conversions but `invert` are linear: a mixture
    becomes the mixture of sources that were converted in the same way.

    Args:
        source: The path of a picture, .npy or .npz file; a PIL image; a NumPy array or a tensor; or
            a list of these, which becomes a batch. 8-bit values are scaled to 0 to 1, floats are
            kept. An .npz file may contain `observation`, `sources` and `alphas`.
        grey: Turn color pictures grey (ITU-R 601 luma).
        color: Turn grey pictures into color pictures of three equal channels.
        invert: Exchange light and dark, 1 - values: for digits in black on white.
        size: Crop pictures to the central part of these proportions and resize it to this number of
            pixels, (height, width) or one number for both.
        options: Further options of the format's reader.
    """
    if grey and color:
        raise BasisError("give grey or color, not both")
    height_width = None if size is None else _as_size(size)
    if isinstance(source, list | tuple):
        each = [
            read(part, grey=grey, color=color, invert=invert, size=size, **options)
            for part in _parts(source)
        ]
        return _join([_as_batch(one) for one in each])
    found = _open(source, options, any_size=size is not None)
    if grey or color or size is not None:
        found = _convert_picture(found, 1 if grey else 3 if color else None, height_width)
    return _inverted(found) if invert else found


def as_observation(
    value: Source | Sequence[Source],
    shape: tuple[int, ...] | None = None,
    value_range: tuple[float, float] | None = None,
) -> Observation:
    """An observation whose values are (batch, channels, *size), float32 or float64.

    Nothing is converted, except that a grey picture saved as RGB, all channels equal, becomes grey
    where the shape has one channel.

    Args:
        value: As `read` takes it, or an observation.
        shape: The shape of one item, (channels, *size), where known. An array of this shape is one
            item, with one more axis a batch; (*size) has one channel; pictures may have their
            channels last. An array that can be read in two ways is rejected.
        value_range: The range of a source's values. 8-bit arrays, which stand for 0 to 1, are
            rejected for any other.
    """
    parts = _parts(value) if isinstance(value, list | tuple) else [value]
    found = []
    for part in parts:
        dtype = getattr(part, "dtype", None)
        if value_range not in (None, (0, 1)) and dtype in (torch.uint8, np.uint8):
            low, high = value_range
            raise BasisError(
                f"8-bit values stand for 0 to 1, and this prior's values are in [{low:g}, "
                f"{high:g}]; give floats"
            )
        found.append(_without_equal_channels(_as_batch(_open(part), shape), shape))
    return _join(found)


def _open(
    source: Any, options: dict[str, Any] | None = None, *, any_size: bool = False
) -> Observation:
    """The observation of one source, unconverted."""
    if isinstance(source, Observation):
        return source
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source), dict(options or {}), any_size)
    if options:
        raise BasisError(f"{next(iter(options))} is an option of files, not of {_name(source)}")
    if isinstance(source, Image.Image):
        return Observation(as_floats(plain_pixels(source), "the picture"), batched=False)
    if isinstance(source, np.ndarray):
        source = from_numpy(source)
    if not isinstance(source, Tensor):
        raise BasisError(f"an observation is {_ACCEPTED_SOURCES}, not {_name(source)}")
    values = _floats(source)
    if not values.numel():
        raise BasisError("the observation is empty; give at least one item")
    if not values.isfinite().all():
        raise BasisError("the observation contains NaN or infinite values")
    return Observation(values)


def _read_file(path: Path, options: dict[str, Any], any_size: bool) -> Observation:
    check_regular(path)
    function = READERS.get(path.suffix.lower())
    if function is None:
        raise BasisError(f"{path} cannot be read; accepted: {', '.join(READERS)}")
    known = list(inspect.signature(function).parameters)[1:]
    for name in options:
        if name not in known:
            accepted = f"; accepted: {', '.join(known)}" if known else ""
            raise BasisError(f"{path}: {path.suffix} files have no option {name!r}{accepted}")
    if any_size and "max_pixels" in known:
        options.setdefault("max_pixels", None)  # larger pictures are made smaller
    found = function(path, **options)
    return replace(found, names=found.names or (path.stem,), paths=(path,))


def _as_batch(found: Observation, shape: tuple[int, ...] | None = None) -> Observation:
    """The observation as a batch, with a name for each item."""
    values = found.values
    if found.batched is None:
        where = str(found.paths[0]) if found.paths else "the observation"
        values = to_batch(values, where, shape)
    elif not found.batched:
        values = values[None]
    count, names = len(values), found.names
    if len(names) == 1 and count > 1:
        names = tuple(f"{names[0]}-{i + 1:04d}" for i in range(count))
    elif len(names) != count:
        names = tuple(f"{i + 1:0{max(2, len(str(count)))}d}" for i in range(count))
    return replace(found, values=values, batched=True, names=names)


def _join(found: list[Observation]) -> Observation:
    """Several batches as one."""
    if len(found) == 1:
        return found[0]
    shapes = sorted({tuple(one.values.shape[1:]) for one in found})
    if len(shapes) > 1:
        raise BasisError(
            f"items of one batch must have one shape, not {' and '.join(map(str, shapes))}"
        )
    given = [one.alphas for one in found if one.alphas is not None]
    if any(alphas.tolist() != given[0].tolist() for alphas in given):
        raise BasisError("these files have different alphas; separate them one by one")
    known = [one.sources for one in found if one.sources is not None]
    complete = len(known) == len(found) and len({one.shape[1:] for one in known}) == 1
    names = [name for one in found for name in one.names]
    if len(set(names)) < len(names):
        unnamed = not any(one.paths for one in found)
        digits = max(2, len(str(len(names))))
        names = [
            f"{i + 1:0{digits}d}" if unnamed else f"{i + 1:0{digits}d}-{name}"
            for i, name in enumerate(names)
        ]
    return replace(
        found[0],
        values=torch.cat([one.values for one in found]),
        names=tuple(names),
        paths=tuple(path for one in found for path in one.paths),
        alphas=given[0] if given else None,
        sources=torch.cat(known) if complete else None,
    )


def _convert_picture(
    found: Observation, channels: int | None, size: tuple[int, int] | None
) -> Observation:
    """Pictures with these channels and of this size; their sources, if any, are left out."""
    batch = _as_batch(found)
    values, done = batch.values, list(found.conversions)
    if values.ndim != 4:
        raise BasisError(
            f"grey, color and size are for pictures, not for values of shape "
            f"{tuple(found.values.shape)}"
        )
    if channels is not None and values.shape[1] != channels:
        values = to_channels(values, channels)
        done.append("grey" if channels == 1 else "color")
    if size is not None and tuple(values.shape[2:]) != size:
        values = _resize(values, *size)
        done.append(f"size {size[0]}x{size[1]}")
    single = found.batched is not True and len(values) == 1
    return replace(
        batch if len(values) > 1 else found,
        values=values[0] if single else values,
        batched=not single,
        sources=batch.sources if done == list(found.conversions) else None,
        conversions=tuple(done),
    )


def _inverted(found: Observation) -> Observation:
    least, most = found.values.min().item(), found.values.max().item()
    if least < -_SAME or most > 1 + _SAME:
        raise BasisError(f"invert needs values from 0 to 1; these are from {least:g} to {most:g}")
    done = (*found.conversions, "invert")
    return replace(found, values=1.0 - found.values, sources=None, conversions=done)


def _without_equal_channels(found: Observation, shape: tuple[int, ...] | None) -> Observation:
    """A grey picture that was saved as RGB, with its one channel."""
    values = found.values
    if shape is None or len(shape) != 3 or shape[0] != 1:
        return found
    if values.ndim != 4 or values.shape[1] != 3 or (values - values[:, :1]).abs().amax() > _SAME:
        return found
    done = (*found.conversions, "grey")
    return replace(found, values=values[:, :1], sources=None, conversions=done)


def _parts(source: Sequence[Any]) -> list[Any]:
    parts = list(source)
    if not parts or any(isinstance(part, list | tuple | int | float) for part in parts):
        raise BasisError(f"an observation is {_ACCEPTED_SOURCES}, not a list of other things")
    return parts


def _as_size(size: Any) -> tuple[int, int]:
    sides = size if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):
        raise BasisError(f"size must be a number of pixels or (height, width), not {size!r}")
    return sides[0], sides[1]


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)


@reader(*PICTURES)
def _read_picture(path: Path, max_pixels: int | None = MOST_PIXELS) -> Observation:
    pixels = picture_pixels(open_picture(path, max_pixels))
    return Observation(as_floats(pixels, path), batched=False)


@reader(*NUMPY)
def _read_numpy(path: Path) -> Observation:
    arrays = load_arrays(path)
    array = pick(arrays, ("observation", "mixture"), path)
    extra = {
        name: as_floats(arrays[name], path) for name in ("sources", "alphas") if name in arrays
    }
    # One more axis for the sources: the axes are (batch, channels, *size).
    batched = True if "sources" in extra and extra["sources"].ndim == array.ndim + 1 else None
    try:
        return Observation(as_floats(array, path), batched, **extra)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error
