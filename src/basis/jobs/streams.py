"""Mixtures that are read as they are needed: arrays on disk, files, pairs of a data set."""

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
from basis.mixings.mixing import Mixing
from basis.signals.observation import read_mixture
from basis.signals.places import ImageSet


@dataclass
class Piece:
    """Some of a stream's mixtures.

    Attributes:
        mixture: float32 (n, c, *size); what could not be read is zero.
        truth: float32 (n, k, C, *size) where the sources are known.
        failures: What is wrong with those that cannot be used, by their place in the piece.
    """

    mixture: Tensor
    truth: Tensor | None = None
    failures: dict[int, str] = field(default_factory=dict)


class MixtureStream(ABC):
    """A number of mixtures of one shape, of which any part can be read at any time.

    Attributes:
        shape: (c, *size) of one mixture.
        names: What the mixtures are called, where they have names.
    """

    shape: tuple[int, ...]
    names: Sequence[str] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, start: int, stop: int) -> Piece:
        """The mixtures from `start` to before `stop`."""

    def checked(self, start: int, stop: int) -> Piece:
        """The same, with NaN and infinities among the failures and zeros in their place."""
        piece = self.read(start, stop)
        finite = piece.mixture.flatten(1).isfinite().all(dim=1)
        for place in (~finite).nonzero().flatten().tolist():
            piece.failures.setdefault(place, "holds NaN or infinite values")
        if piece.failures:
            piece.mixture = piece.mixture.clone()
            piece.mixture[list(piece.failures)] = 0
        return piece


class ArrayStream(MixtureStream):
    """The mixtures of an array (n, c, *size), which may be a memory map of a file on disk.

    Args:
        array: uint8 (v stands for v / 255) or floats; a tensor or a NumPy array.
        change: Applied to every piece that is read (n, c, *size); keeps its number of items.
    """

    def __init__(
        self,
        array: np.ndarray | Tensor,
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.array = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
        self.change = change
        if self.array.ndim < 3 or not len(self.array):
            raise BasisError(
                f"mixtures must be (n, channels, *size) with n of 1 or more, not {array.shape}"
            )
        if self.array.dtype != np.uint8 and not np.issubdtype(self.array.dtype, np.floating):
            raise BasisError(f"mixtures are {self.array.dtype}; uint8 or floats are accepted")
        self.shape = tuple(self.read(0, 1).mixture.shape[1:])

    def __len__(self) -> int:
        return len(self.array)

    def read(self, start: int, stop: int) -> Piece:
        part = self.array[start:stop]
        scaled = part.dtype == np.uint8
        with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is found later
            values = torch.from_numpy(np.array(part, dtype=np.float32, order="C"))
        values = values.div_(255) if scaled else values
        return Piece(values if self.change is None else self.change(values))


class FittedStream(MixtureStream):
    """The mixtures of another stream, each changed by itself; one that cannot be fails alone.

    Args:
        stream: The other stream.
        fit: Makes (c, *size) of one; raises where it cannot.
    """

    def __init__(self, stream: MixtureStream, fit: Callable[[Tensor], Tensor]) -> None:
        self.stream, self.fit, self.names = stream, fit, stream.names
        self.shape = _shape_of_first(lambda i: fit(stream.read(i, i + 1).mixture[0]), len(stream))

    def __len__(self) -> int:
        return len(self.stream)

    def read(self, start: int, stop: int) -> Piece:
        given = self.stream.checked(start, stop)
        piece = Piece(torch.zeros(len(given.mixture), *self.shape), None, given.failures)
        for place, item in enumerate(given.mixture):
            if place not in piece.failures:
                try:
                    piece.mixture[place] = self.fit(item)
                except BasisError as error:
                    piece.failures[place] = str(error)
        return piece


class FileStream(MixtureStream):
    """Files of one mixture each, all of one shape; one that cannot be read fails alone.

    Args:
        paths: The files, in the order of the mixtures.
        read: What reads one as (c, *size).
        names: What to call them; their stems, made different where they are not, by default.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[Path], Tensor],
        names: Sequence[str] | None = None,
    ) -> None:
        if not paths:
            raise BasisError("there are no files to read; give at least one")
        self.paths, self._read_one = list(paths), read
        self.names = list(names) if names is not None else _own_names(self.paths)
        self.shape = _shape_of_first(lambda i: read(self.paths[i]), len(self.paths))

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> Piece:
        paths = self.paths[start:stop]
        piece = Piece(torch.zeros(len(paths), *self.shape))
        for place, path in enumerate(paths):
            try:
                found = self._read_one(path)
            except BasisError as error:
                piece.failures[place] = str(error)
                continue
            if tuple(found.shape) == self.shape:
                piece.mixture[place] = found
            else:
                piece.failures[place] = (
                    f"{path} has shape {tuple(found.shape)}, where the first has {self.shape}"
                )
        return piece


class PairStream(MixtureStream):
    """Mixtures made of the images of a data set, whose sources are therefore known.

    Args:
        images: The set.
        indices: (n, k): which images each mixture is made of.
        mixing: How they are mixed.
        noise: Standard deviation of Gaussian noise on the mixtures.
        seed: The noise's.
        change: What else is done to mixtures (n, c, *size), such as cutting them off.
    """

    def __init__(
        self,
        images: ImageSet,
        indices: Tensor,
        mixing: Mixing,
        noise: float = 0.0,
        seed: int = 0,
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.images, self.indices, self.mixing = images, indices, mixing
        self.noise, self.seed, self.change = noise, seed, change
        self.shape = tuple(self.read(0, 1).mixture.shape[1:])

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, start: int, stop: int) -> Piece:
        indices = self.indices[start:stop]
        truth = self.images.floats(indices.flatten()).unflatten(0, tuple(indices.shape))
        mixture = self.mixing(truth)
        if self.noise:
            # A generator per mixture: what is read does not depend on how it is cut.
            for place, row in enumerate(mixture, start=start):
                key = hashlib.sha256(f"noise {self.seed} {place}".encode()).digest()
                generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
                row += self.noise * torch.randn(row.shape, generator=generator)
        return Piece(mixture if self.change is None else self.change(mixture), truth)


def open_array(path: str | Path, dims: int | None = None) -> ArrayStream:
    """A stream of the mixtures in an .npy, which is read piece by piece, or an .npz.

    Args:
        path: The file.
        dims: The axes of a signal's size (`len(prior.shape) - 1`).

    An .npz is compressed as a whole and has to be read as a whole.
    """
    path = Path(path)
    if path.suffix.lower() != ".npy":
        return ArrayStream(read_mixture(path, dims=dims).mixture)
    if not path.is_file():
        raise BasisError(f"there is no file {path}")
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # broken headers raise anything
        raise BasisError(
            f"{path} is not a NumPy file that can be read ({type(error).__name__}); "
            "accepted: .npy of numbers, without pickled objects"
        ) from error
    if dims is not None and array.ndim != dims + 2:
        # Other orders of axes are for the reader that looks at all of it.
        return ArrayStream(read_mixture(path, dims=dims).mixture)
    if dims == 2 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    try:
        return ArrayStream(array)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def _shape_of_first(read: Callable[[int], Tensor], count: int) -> tuple[int, ...]:
    """The shape of the first mixture that can be used, looked for among the first few."""
    complaint: BasisError | None = None
    for index in range(min(16, count)):
        try:
            return tuple(read(index).shape)
        except BasisError as error:
            complaint = complaint or error
    assert complaint is not None
    raise complaint


def _own_names(paths: Sequence[Path]) -> list[str]:
    names = [path.stem for path in paths]
    if len(set(names)) == len(names):
        return names
    digits = len(str(len(names)))
    return [f"{i + 1:0{digits}d}-{name}" for i, name in enumerate(names)]
