"""Observations that are read as they are needed: arrays on disk, files, folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.files import reading as reading_file
from basis.signals.arrays import CHANNELS, TYPES
from basis.signals.observation import Observation, as_observation, read
from basis.signals.pictures import find_pictures


@dataclass
class Piece:
    """Consecutive observations of a stream.

    Attributes:
        observation: float32 (n, c, *size); what could not be read is zero.
        sources: float32 (n, k, C, *size) where the true sources are known.
        failures: Why observations cannot be used, by their index in the piece.
    """

    observation: Tensor
    sources: Tensor | None = None
    failures: dict[int, str] = field(default_factory=dict)


class ObservationStream(ABC):
    """Observations of one shape, of which any part can be read at any time.

    Attributes:
        shape: (c, *size) of one observation.
        names: The names of the observations, if they have any.
        alphas: The mixing coefficients that the file says, if it says any.
    """

    shape: tuple[int, ...]
    names: Sequence[str] | None = None
    alphas: tuple[float, ...] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, start: int, stop: int) -> Piece:
        """The observations from `start` to before `stop`; raises where one cannot be read."""

    def checked(self, start: int, stop: int) -> Piece:
        """The same, where observations that cannot be used are zero and listed as failures."""
        try:
            piece = self.read(start, stop)
        except BasisError:
            piece = self._one_by_one(start, stop)
        finite = piece.observation.flatten(1).isfinite().all(dim=1)
        for i in (~finite).nonzero().flatten().tolist():
            piece.failures.setdefault(i, "holds NaN or infinite values")
        if piece.failures:
            piece.observation = piece.observation.clone()
            piece.observation[list(piece.failures)] = 0
        return piece

    def _one_by_one(self, start: int, stop: int) -> Piece:
        piece = Piece(torch.zeros(stop - start, *self.shape))
        for i in range(stop - start):
            try:
                piece.observation[i] = self.read(start + i, start + i + 1).observation[0]
            except BasisError as error:
                piece.failures[i] = str(error)
        return piece

    def _first_shape(self) -> tuple[int, ...]:
        """The shape of the first observation that can be read, among the first few."""
        first: BasisError | None = None
        for i in range(min(16, len(self))):
            try:
                return tuple(self.read(i, i + 1).observation.shape[1:])
            except BasisError as error:
                first = first or error
        raise first or BasisError("there are no observations; give at least one")


class ArrayStream(ObservationStream):
    """The observations of an array (n, c, *size), which may be a memory map of a file.

    Args:
        array: uint8 (v stands for v / 255), int16 (v / 32768) or floats; a tensor or a NumPy array.
        change: Applied to every piece that is read (n, c, *size); keeps the number of items.
        sources: The true sources, (n, k, C, *size), if they are known.
    """

    def __init__(
        self,
        array: np.ndarray | Tensor,
        change: Callable[[Tensor], Tensor] | None = None,
        sources: Tensor | None = None,
    ) -> None:
        self.array = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
        self.change, self.sources = change, sources
        if self.array.ndim < 3 or not len(self.array):
            raise BasisError(
                f"observations must be (n, channels, *size), n at least 1, not {self.array.shape}"
            )
        if self.array.dtype.kind != "f" and self.array.dtype not in (np.uint8, np.int16):
            raise BasisError(f"the observations contain {self.array.dtype} values; {TYPES}")
        self.shape = self._first_shape()

    def __len__(self) -> int:
        return len(self.array)

    def read(self, start: int, stop: int) -> Piece:
        part = self.array[start:stop]
        with np.errstate(over="ignore"):  # values beyond float32 become infinite: found later
            values = torch.from_numpy(np.array(part, dtype=np.float32, order="C"))
        if part.dtype.kind != "f":
            values = values.div_(255 if part.dtype == np.uint8 else 32768)
        truth = None if self.sources is None else self.sources[start:stop]
        return Piece(values if self.change is None else self.change(values), truth)


class FileStream(ObservationStream):
    """Files of one observation each, all of one shape.

    Args:
        paths: The files, in the order of the observations.
        read: Reads one as (c, *size).
        names: Their names; by default the stems of the files, numbered where they are not unique.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[Path], Tensor],
        names: Sequence[str] | None = None,
    ) -> None:
        self.paths, self._read_one = list(paths), read
        self.names = list(names) if names is not None else unique_stems(self.paths)
        self.shape = ()
        self.shape = self._first_shape()

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> Piece:
        found = []
        for path in self.paths[start:stop]:
            found.append(self._read_one(path))
            if self.shape and tuple(found[-1].shape) != self.shape:
                raise BasisError(
                    f"{path} has shape {tuple(found[-1].shape)}, the first has {self.shape}"
                )
        return Piece(torch.stack(found))


Observations = (
    ObservationStream
    | Observation
    | np.ndarray
    | Tensor
    | str
    | Path
    | Sequence[str | Path]
    | Callable[[tuple[int, ...]], ObservationStream]
)
"""What a job takes; a function is called with the shape of an observation."""


def as_stream(
    observations: Observations,
    shape: tuple[int, ...] | None = None,
    *,
    skip: str | Path | None = None,
    mean: bool = False,
    **reading: Any,
) -> ObservationStream:
    """Observations that are read as they are needed.

    Args:
        observations: A folder of pictures; paths of such folders or of files with one observation
            each; an .npy, which is read piece by piece, or an .npz; or an array (n, channels,
            *size).
        shape: The shape of an observation, (channels, *size), as `separate` expects it; larger
            pictures are accepted.
        skip: A folder whose files are not read, such as that of the results.
        mean: Take the mean of the channels.
        reading: The conversions of `basis.read`: grey, color, invert, size.
    """
    if isinstance(observations, ObservationStream):
        return observations
    if callable(observations):
        return observations(shape or ())
    if isinstance(observations, Observation):
        return _in_memory(as_observation(observations, shape))
    asked = {name: value for name, value in reading.items() if value}

    def convert(values: Tensor) -> Tensor:
        if asked:
            values = read(Observation(values, batched=True), **asked).values
        return values.mean(dim=1, keepdim=True) if mean else values

    change = convert if asked or mean else None
    if isinstance(observations, Tensor):
        observations = observations.detach().cpu().numpy()
    if isinstance(observations, np.ndarray):
        return _array_stream(observations, shape, change)
    paths = [observations] if isinstance(observations, str | Path) else list(observations)
    if paths and not all(isinstance(path, str | Path) for path in paths):
        return _in_memory(as_observation(paths, shape))
    if len(paths) == 1 and Path(paths[0]).suffix.lower() in (".npy", ".npz"):
        return _open_array(Path(paths[0]), shape, change)
    found: list[Path] = []
    for path in map(Path, paths):
        own = None if skip is None else Path(skip).resolve()
        inside = find_pictures(path) if path.is_dir() else [path]
        found += [p for p in inside if own is None or own not in p.resolve().parents]
        if not inside:
            raise BasisError(f"{path} holds no pictures")

    def read_one(path: Path) -> Tensor:
        values = as_observation(read(path, **asked), shape).values
        if len(values) != 1:
            raise BasisError(f"{path} holds {len(values)} observations; one per file is accepted")
        return (values.mean(dim=1, keepdim=True) if mean else values)[0]

    return FileStream(found, read_one)


def _open_array(
    path: Path, shape: tuple[int, ...] | None, change: Callable[[Tensor], Tensor] | None
) -> ArrayStream:
    if path.suffix.lower() != ".npy" or not path.is_file():
        return _in_memory(as_observation(read(path), shape), change)
    with reading_file(path, "a NumPy file"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    try:
        return _array_stream(array, shape, change)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def _array_stream(
    array: np.ndarray, shape: tuple[int, ...] | None, change: Callable[[Tensor], Tensor] | None
) -> ArrayStream:
    """A stream of an array with the axes that `separate` accepts; batches are not copied."""
    if shape is not None and array.ndim != len(shape) + 1:
        return _in_memory(as_observation(array, shape), change)
    last = array.ndim == 4 and array.shape[1] not in CHANNELS and array.shape[3] in CHANNELS
    if last and array.shape[1:] != shape:
        array = array.transpose(0, 3, 1, 2)
    return ArrayStream(array, change)


def _in_memory(found: Observation, change: Callable[[Tensor], Tensor] | None = None) -> ArrayStream:
    stream = ArrayStream(found.values, change, None if change else found.sources)
    stream.alphas = None if found.alphas is None else tuple(found.alphas.tolist())
    return stream


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """The stems of files, each with a number before it where two are equal."""
    names = [path.stem for path in paths]
    if len(set(names)) == len(names):
        return names
    digits = len(str(len(names)))
    return [f"{i + 1:0{digits}d}-{name}" for i, name in enumerate(names)]
