"""Observations: what is separated, read from files, pictures and arrays."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_regular, whole_file
from basis.signals.arrays import (
    CHANNELS,
    as_floats,
    as_tensor,
    crop_and_resize,
    to_batch,
    to_channels,
)

MAX_PIXELS = 24_000_000
"""Pixels of a picture that is separated at its own size: larger ones take very long."""

_INTEGERS = {"uint8": (8, (0, 1)), "int16": (16, (-1, 1))}  # bits, and what the values stand for
_EQUAL = 1e-6  # channels that differ by less are equal
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
        original_size: Height and width of pictures before `size` changed them, or None.
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
    original_size: tuple[int, ...] | None = None
    rate: float | None = None
    channels: tuple[str, ...] = ()
    units: str = ""

    def __post_init__(self) -> None:
        for name in ("values", "alphas", "sources"):
            value = getattr(self, name)
            if value is None and name != "values":
                continue
            floats = isinstance(value, Tensor) and value.is_floating_point()
            if not floats or not value.isfinite().all():
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
        if path.suffix.lower() not in (".npz", ".npy", ".png"):
            raise BasisError(f"{path} must end in .npz, .npy or .png")
        if path.suffix.lower() == ".png":
            return _write_picture(path, self.values if self.batched else self.values[None])
        arrays = {"observation": self.values, "sources": self.sources, "alphas": self.alphas}
        saved: dict[str, Any] = {
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
        source: The path of a picture, .npy or .npz file; an image of a data set such as
            "sample:3"; a PIL image; a NumPy array or a tensor; or a list of these, which becomes a
            batch. uint8 is divided by 255 and int16 by 32768; floats are kept. The axes of an array
            are decided by the shape of the prior. An .npz file may contain `observation`, `sources`
            and `alphas`.
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
        shape: The shape of one item, (channels, *size), where known: it decides which axes an array
            has, as `basis.signals.to_batch` says. An array that can be read in two ways is
            rejected.
        value_range: The range of a source's values. Arrays of uint8, which stand for 0 to 1, and
            of int16, which stand for -1 to 1, are rejected for any other.
    """
    parts = _parts(value) if isinstance(value, list | tuple) else [value]
    found = []
    for part in parts:
        dtype = str(getattr(part, "dtype", "")).removeprefix("torch.")
        bits, own = _INTEGERS.get(dtype, (0, None))
        if own is not None and value_range is not None and value_range != own:
            low, high = value_range
            raise BasisError(
                f"{bits}-bit values stand for {own[0]} to {own[1]}, and this prior's values are in "
                f"[{low:g}, {high:g}]; give floats"
            )
        found.append(_without_equal_channels(_as_batch(_open(part), shape), shape))
    return _join(found)


def _open(
    source: Any, options: dict[str, Any] | None = None, *, any_size: bool = False
) -> Observation:
    """The observation of one source, unconverted."""
    if isinstance(source, Observation):
        return source
    if isinstance(source, str) and ":" in source:
        from basis.signals.datasets import load_image

        image = load_image(source)
        if image is not None:
            return Observation(image, batched=False, names=(source.replace(":", "-"),))
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source), dict(options or {}), any_size)
    if options:
        raise BasisError(f"{next(iter(options))} is an option of files, not of arrays")
    if isinstance(source, Image.Image):
        from basis.signals.pictures import picture_floats, plain_mode

        where = "the picture"
        return Observation(picture_floats(plain_mode(source, where), where), batched=False)
    if isinstance(source, np.ndarray):
        source = as_tensor(source, "the observation")
    if not isinstance(source, Tensor):
        raise BasisError(f"an observation is {_ACCEPTED_SOURCES}, not {type(source).__name__}")
    return Observation(as_floats(source, "the observation", double=True))


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
        values = to_batch(values, where, shape).contiguous()
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
    sizes = {one.original_size for one in found}
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
        original_size=found[0].original_size if len(sizes) == 1 else None,
    )


def _convert_picture(
    found: Observation, channels: int | None, size: tuple[int, int] | None
) -> Observation:
    """Pictures with these channels and of this size; their sources, if any, are left out."""
    batch = _as_batch(found)
    values, done, original = batch.values, list(found.conversions), found.original_size
    if values.ndim != 4:
        raise BasisError(
            f"grey, color and size are for pictures, not for values of shape "
            f"{tuple(found.values.shape)}"
        )
    if channels is not None and values.shape[1] != channels:
        values = to_channels(values, channels)
        done.append("grey" if channels == 1 else "color")
    if size is not None and tuple(values.shape[2:]) != size:
        original = original or tuple(values.shape[2:])
        values = crop_and_resize(values, *size)
        done.append(f"size {size[0]}x{size[1]}")
    single = found.batched is not True and len(values) == 1
    return replace(
        batch if len(values) > 1 else found,
        values=values[0] if single else values,
        batched=not single,
        sources=batch.sources if done == list(found.conversions) else None,
        conversions=tuple(done),
        original_size=original,
    )


def _inverted(found: Observation) -> Observation:
    least, most = found.values.min().item(), found.values.max().item()
    if least < -_EQUAL or most > 1 + _EQUAL:
        raise BasisError(f"invert needs values from 0 to 1; these are from {least:g} to {most:g}")
    done = (*found.conversions, "invert")
    return replace(found, values=1.0 - found.values, sources=None, conversions=done)


def _without_equal_channels(found: Observation, shape: tuple[int, ...] | None) -> Observation:
    """A grey picture that was saved as RGB, with its one channel."""
    values = found.values
    if shape is None or len(shape) != 3 or shape[0] != 1:
        return found
    if values.ndim != 4 or values.shape[1] != 3 or (values - values[:, :1]).abs().amax() > _EQUAL:
        return found
    done = (*found.conversions, "grey")
    return replace(found, values=values[:, :1], sources=None, conversions=done)


def _write_picture(path: Path, values: Tensor) -> None:
    """Writes one picture in 8 bits."""
    if values.ndim != 4 or len(values) != 1 or values.shape[1] not in CHANNELS:
        raise BasisError(f"{path}: a picture is one grey or color observation; use .npz for others")
    low, high = values.min().item(), values.max().item()
    if low < 0 or high > 1 + 1e-6:
        raise BasisError(
            f"{path}: a picture has values from 0 to 1, this observation has {low:.2f} to "
            f"{high:.2f}; use .npz, or alphas of at least 0 that sum to at most 1"
        )
    pixels = (values[0] * 255).round().to("cpu", torch.uint8).movedim(0, -1).squeeze(-1)
    with whole_file(path) as temporary:
        Image.fromarray(pixels.contiguous().numpy()).save(temporary)


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
