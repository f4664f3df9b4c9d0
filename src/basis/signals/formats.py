"""The file formats of published data sets."""

from __future__ import annotations

import gzip
import math
import os
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np
from PIL import Image
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_fits_memory, check_regular, reading
from basis.signals.pictures import decode_bytes, stack_pictures
from basis.signals.places import CIFAR_BATCHES, Split, missing, plain_or_gz

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


_UBYTE = 0x08


def is_idx(path: Path) -> bool:
    """Whether a file, compressed or not, begins like an idx file of bytes."""
    if not path.is_file():
        return False  # a pipe, which would be waited for
    try:
        with _open(path) as file:
            magic = file.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return len(magic) == 4 and magic[:3] == bytes([0, 0, _UBYTE]) and 1 <= magic[3] <= 4


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The uint8 array of `ndim` axes in an idx file, plain or gzip."""
    check_regular(path)
    with reading(path, "an idx file", "fetch it again"), _open(path) as file:
        header = file.read(4 + 4 * ndim)
        if len(header) < 4 + 4 * ndim or header[:4] != bytes([0, 0, _UBYTE, ndim]):
            raise BasisError(f"{path} is not an idx file of bytes with {ndim} axes")
        shape = struct.unpack(f">{ndim}I", header[4:])
        expected = math.prod(shape)
        if expected > _most(path):
            raise BasisError(f"{path} announces {expected} bytes and holds fewer; fetch it again")
        check_fits_memory(2 * expected, path)
        data = file.read(expected + 1)
    if len(data) != expected:
        held = f"{len(data)} bytes" if len(data) < expected else "more"
        raise BasisError(f"{path} announces {expected} bytes and holds {held}; fetch it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape).copy()


def _most(path: Path) -> int:
    """The most bytes that a file can hold: deflate makes at most 1032 of one."""
    size = path.stat().st_size
    return 1032 * size if _is_compressed(path) else size


def labels_beside(images: Path) -> Path | None:
    """The labels file that goes with an images file under MNIST's naming, where there is one."""
    name = images.name.removesuffix(".gz").replace("images-idx3", "labels-idx1")
    if "labels-idx1" not in name or "images-idx3" not in images.name:
        return None
    return plain_or_gz(images.with_name(name))


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if _is_compressed(path) else open(path, "rb")


def _is_compressed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


MOST = 150_000
"""Pictures read at most: bedrooms are three million, which no memory here holds."""


def is_lmdb(folder: Path) -> bool:
    """Whether a folder is an lmdb."""
    return (folder / "data.mdb").is_file()


def read_lmdb(folder: Path, *, size: int | None = None, channels: int | None = None) -> Tensor:
    """Images (n, c, h, w) of an lmdb of encoded pictures, in the order of its keys."""
    try:
        import lmdb
    except ImportError as error:
        raise BasisError(
            f"{folder} is an lmdb, which needs a package: pip install 'basis-separation[lsun]'"
        ) from error
    name = os.fsencode(folder)  # names that are no UTF-8 are names too
    with reading(folder, "an lmdb"):
        try:
            with lmdb.open(name, readonly=True, lock=False, subdir=True) as environment:
                _check_whole(environment, folder)
                if not environment.stat()["entries"]:
                    raise BasisError(f"{folder} holds no pictures")
                return stack_pictures(_pictures(environment, folder), size, channels)
        except lmdb.Error as error:
            raise BasisError(f"{folder} is not an lmdb that can be read: {error}") from error


def _check_whole(environment: Any, folder: Path) -> None:
    """Refuses a file that ends before its last page: reading beyond the end kills the process."""
    pages = environment.info()["last_pgno"] + 1
    size, needed = (folder / "data.mdb").stat().st_size, pages * environment.stat()["psize"]
    if size < needed:
        raise BasisError(f"{folder / 'data.mdb'} is cut short: {size} of {needed} bytes are there")


def _pictures(environment: Any, folder: Path) -> Iterator[tuple[Path, Image.Image]]:
    with environment.begin() as transaction:
        for number, (key, value) in enumerate(transaction.cursor()):
            if number >= MOST:
                return
            name = folder / key.decode("ascii", "replace")
            yield name, decode_bytes(value, name)
