"""The CIFAR-10 batches: Python pickles, read without running what a pickle may ask to run."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from basis._errors import BasisError
from basis._reading import check_regular, reading
from basis.data._places import CIFAR_BATCHES, Split, missing

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

# What an array and its type ask for, under the names of either NumPy. None of them is ever called:
# NumPy restoring an array from a crafted state would follow whatever addresses the state gives.
_ADMITTED = (
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
)
_LARGEST = 1 << 28  # bytes of a batch file; the published ones have 31 MB
_BYTE_TYPES = ("u1", "|u1", "uint8", b"u1", b"|u1", b"uint8")


def read_cifar(folder: Path, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of a folder of CIFAR-10 batches."""
    parts = []
    for name in CIFAR_BATCHES[split]:
        if not (folder / name).is_file():
            raise missing("cifar10", folder / name)
        parts.append(read_batch(folder / name))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of one batch file."""
    check_regular(path)
    if path.stat().st_size > _LARGEST:
        raise BasisError(f"{path} is not a CIFAR-10 batch: it is larger than {_LARGEST} bytes")
    with reading(path, "a CIFAR-10 batch", "fetch it again"), open(path, "rb") as file:
        _check_memo(file)
        file.seek(0)
        batch = _Recorder(file, path).load()
    if not isinstance(batch, dict):
        raise BasisError(f"{path} is not a CIFAR-10 batch: it holds no dictionary")
    data = _pixels_of(batch.get(b"data", batch.get("data")))
    labels = batch.get(b"labels", batch.get("labels"))
    if data is None:
        raise BasisError(f"{path} is not a CIFAR-10 batch: `data` must be uint8 of shape (n, 3072)")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise BasisError(
            f"{path} is not a CIFAR-10 batch: `labels` must be a list of {len(data)} numbers "
            "from 0 to 9"
        )
    return data.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _pixels_of(array: Any) -> np.ndarray | None:
    """The values (n, 3072) of a recorded array of bytes; None where it is something else."""
    if not isinstance(array, _Recorded) or array.what.name != "_reconstruct":
        return None
    match array.state:
        case (int(), (int(count), 3072), _Recorded(_Name(_, "dtype"), args), order, content):
            pass
        case _:
            return None
    if not args or args[0] not in _BYTE_TYPES or order or not isinstance(content, bytes):
        return None
    if count < 0 or len(content) != count * 3072:
        return None
    return np.frombuffer(content, dtype=np.uint8).reshape(count, 3072).copy()


def _encoded(text: Any, encoding: Any) -> bytes:
    """The bytes that Python 3 writes as text in Latin-1 for the sake of Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("it holds bytes in an encoding that no pickle uses")
    return text.encode("latin-1")


def _check_memo(file: BinaryIO) -> None:
    """Refuses places to remember things at that lie beyond the file: room is made for all."""
    for number, (code, value, _) in enumerate(pickletools.genops(file)):
        if "PUT" in code.name and isinstance(value, int) and value > number:
            raise pickle.UnpicklingError("it remembers more than it holds")


@dataclass(frozen=True, slots=True)
class _Name:
    """A function or class that a pickle names; calling it only records the call."""

    module: str
    name: str

    def __call__(self, *args: Any) -> _Recorded:
        return _Recorded(self, args)


@dataclass(slots=True, eq=False)
class _Recorded:
    """What would have been made by a call, and the state it would have been given."""

    what: _Name
    args: tuple[Any, ...]
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Recorder(pickle.Unpickler):
    """Unpickles plain containers, text and numbers; of everything else only notes are taken."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        super().__init__(file, encoding="bytes")  # the batches were written by Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) == ("_codecs", "encode"):
            return _encoded
        if (module, name) not in _ADMITTED:
            raise BasisError(
                f"{self.path} asks for {f'{module}.{name}'!r:.100}, which is refused: "
                "a CIFAR-10 batch holds only NumPy arrays, lists, text and numbers"
            )
        return _Name(module, name)
