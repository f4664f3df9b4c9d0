"""Observations that are read as they are needed: arrays on disk, files, mixtures of a data set."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.files import reading
from basis.mixings.mixing import Mixing
from basis.signals.image_set import ImageSet
from basis.signals.old_observation import read_mixture


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
        array: uint8 (v stands for v / 255) or floats; a tensor or a NumPy array.
        change: Applied to every piece that is read (n, c, *size); keeps the number of items.
    """

    def __init__(
        self, array: np.ndarray | Tensor, change: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.array = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
        self.change = change
        if self.array.ndim < 3 or not len(self.array):
            raise BasisError(
                f"observations must be (n, channels, *size), n at least 1, not {self.array.shape}"
            )
        if self.array.dtype != np.uint8 and not np.issubdtype(self.array.dtype, np.floating):
            raise BasisError(f"observations must be uint8 or floats, not {self.array.dtype}")
        self.shape = self._first_shape()

    def __len__(self) -> int:
        return len(self.array)

    def read(self, start: int, stop: int) -> Piece:
        part = self.array[start:stop]
        with np.errstate(over="ignore"):  # values beyond float32 become infinite: found later
            values = torch.from_numpy(np.array(part, dtype=np.float32, order="C"))
        values = values.div_(255) if part.dtype == np.uint8 else values
        return Piece(values if self.change is None else self.change(values))


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


class PairStream(ObservationStream):
    """Mixtures of the images of a data set, whose true sources are therefore known.

    Args:
        images: The set.
        indices: (n, k): which images each mixture is made of.
        mixing: How they are mixed.
        noise: Standard deviation of Gaussian noise that is added.
        seed: Seed of the noise.
    """

    def __init__(
        self, images: ImageSet, indices: Tensor, mixing: Mixing, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.images, self.indices, self.mixing = images, indices, mixing
        self.noise, self.seed = noise, seed
        self.shape = self._first_shape()

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, start: int, stop: int) -> Piece:
        indices = self.indices[start:stop]
        sources = self.images.floats(indices.flatten()).unflatten(0, tuple(indices.shape))
        observation = self.mixing(sources)
        if self.noise:
            # A generator per mixture, so that the noise does not depend on how the stream is cut.
            for i, row in enumerate(observation, start=start):
                key = hashlib.sha256(f"noise {self.seed} {i}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
                row += self.noise * torch.randn(row.shape, generator=generator)
        return Piece(observation, sources)


def open_array(
    path: str | Path, dims: int | None = None, change: Callable[[Tensor], Tensor] | None = None
) -> ArrayStream:
    """A stream of the observations in an .npy, which is read piece by piece, or an .npz.

    An .npz is compressed as a whole, and read as a whole.

    Args:
        path: The file.
        dims: The axes of a signal's size (`len(prior.shape) - 1`).
        change: As for `ArrayStream`.
    """
    path = Path(path)
    array: Any = None
    if path.suffix.lower() == ".npy" and path.is_file():
        with reading(path, "a NumPy file"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        if dims == 2 and array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] < 4:
            array = array.transpose(0, 3, 1, 2)
    if array is None or (dims is not None and array.ndim != dims + 2):
        found = read_mixture(path, dims=dims)
        stream = ArrayStream(found.mixture, change)
        stream.alphas = None if found.alphas is None else tuple(found.alphas.tolist())
        return stream
    try:
        return ArrayStream(array, change)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """The stems of files, each with a number before it where two are equal."""
    names = [path.stem for path in paths]
    if len(set(names)) == len(names):
        return names
    digits = len(str(len(names)))
    return [f"{i + 1:0{digits}d}-{name}" for i, name in enumerate(names)]
