"""The file formats of published data sets: CIFAR-10 batches, idx files and lmdb folders."""

from __future__ import annotations

import gzip
import io
import math
import os
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from PIL import Image
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_fits_memory, check_regular, reading
from basis.signals.pictures import open_8_bit, stack_pictures

MOST_PICTURES = 150_000
"""Pictures of an lmdb that are read at most: LSUN's bedrooms are three million."""

_LARGEST_BATCH = 1 << 28  # bytes; the published batches have 31 MB
_BYTE_TYPES = ("u1", "|u1", "uint8", b"u1", b"|u1", b"uint8")
_UBYTE = 0x08
# What a pickled array asks for, under the names of either NumPy. None of them is ever called: NumPy
# restoring an array from a crafted state would follow whatever addresses the state contains.
_ADMITTED = (
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
)


# CIFAR-10.


def read_cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of one batch file."""
    check_regular(path)
    if path.stat().st_size > _LARGEST_BATCH:
        raise BasisError(
            f"{path} is not a CIFAR-10 batch: it is larger than {_LARGEST_BATCH} bytes"
        )
    with reading(path, "a CIFAR-10 batch", "fetch it again"):
        content = path.read_bytes()
        _check_sizes(content)
        batch = _Recorder(content, path).load()
    if not isinstance(batch, dict):
        raise BasisError(f"{path} is not a CIFAR-10 batch: it contains no dictionary")
    data = _recorded_pixels(batch.get(b"data", batch.get("data")))
    labels = batch.get(b"labels", batch.get("labels"))
    if data is None:
        raise BasisError(f"{path} is not a CIFAR-10 batch: `data` must be uint8 of shape (n, 3072)")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(label) is int and 0 <= label < 10 for label in labels)
    ):
        raise BasisError(
            f"{path} is not a CIFAR-10 batch: `labels` must be a list of {len(data)} numbers "
            "from 0 to 9"
        )
    return data.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Name:
    """A function or class that a pickle names; calling it only records the call."""

    module: str
    name: str

    def __call__(self, *args: Any) -> _Call:
        return _Call(self, args)


@dataclass(slots=True, eq=False)
class _Call:
    """A recorded call, and the state that its result would have been given."""

    what: _Name
    args: tuple[Any, ...]
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Recorder(pickle.Unpickler):
    """Unpickles plain containers, text and numbers, and records everything else."""

    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")  # written by Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) == ("_codecs", "encode"):
            return _encoded
        if (module, name) not in _ADMITTED:
            raise BasisError(
                f"{self.path} asks for {f'{module}.{name}'!r:.100}, which is refused: "
                "a CIFAR-10 batch contains only NumPy arrays, lists, text and numbers"
            )
        return _Name(module, name)


def _encoded(text: Any, encoding: Any) -> bytes:
    """The bytes that Python 3 pickles as Latin-1 text so that Python 2 can read them."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("it contains bytes in an unknown encoding")
    return text.encode("latin-1")


def _check_sizes(content: bytes) -> None:
    """Rejects sizes and memo indices beyond those of the file: memory would be allocated for them.

    `genops` itself rejects strings that are longer than what is left of the file.
    """
    for number, (code, value, _) in enumerate(pickletools.genops(content)):
        if "PUT" in code.name and isinstance(value, int) and value > number:
            raise pickle.UnpicklingError("its memo is larger than the file")


def _recorded_pixels(array: Any) -> np.ndarray | None:
    """The values (n, 3072) of a recorded array of bytes; None for anything else."""
    if not isinstance(array, _Call) or array.what.name != "_reconstruct":
        return None
    match array.state:
        case (int(), (int(count), 3072), _Call(_Name(_, "dtype"), args), order, content):
            pass
        case _:
            return None
    if not args or args[0] not in _BYTE_TYPES or order or not isinstance(content, bytes):
        return None
    if count < 0 or len(content) != count * 3072:
        return None
    return np.frombuffer(content, dtype=np.uint8).reshape(count, 3072).copy()


# idx, the format of MNIST.


def is_idx(path: Path) -> bool:
    """Whether a file, compressed or not, begins like an idx file of bytes."""
    if not path.is_file():
        return False  # reading from a pipe would wait
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
        if expected > _largest_content(path):
            raise BasisError(f"{path} announces {expected} bytes and has fewer; fetch it again")
        check_fits_memory(2 * expected, path)
        data = file.read(expected + 1)
    if len(data) != expected:
        held = f"{len(data)} bytes" if len(data) < expected else "more"
        raise BasisError(f"{path} announces {expected} bytes and has {held}; fetch it again")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape).copy()


def plain_or_gz(path: Path) -> Path | None:
    """A file, or else its gzip."""
    for candidate in (path, path.with_name(path.name + ".gz")):
        if os.path.isfile(candidate):
            return candidate
    return None


def find_labels(images: Path) -> Path | None:
    """The labels file of an images file under MNIST's naming, if there is one."""
    name = images.name.removesuffix(".gz").replace("images-idx3", "labels-idx1")
    if "labels-idx1" not in name or "images-idx3" not in images.name:
        return None
    return plain_or_gz(images.with_name(name))


def _largest_content(path: Path) -> int:
    """The most bytes that a file can contain: deflate makes at most 1032 of one."""
    size = path.stat().st_size
    return 1032 * size if _is_compressed(path) else size


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if _is_compressed(path) else open(path, "rb")


def _is_compressed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


# lmdb, the format of LSUN.


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
    name = os.fsencode(folder)  # file names need not be valid UTF-8
    with reading(folder, "an lmdb"):
        try:
            with lmdb.open(name, readonly=True, lock=False, subdir=True) as environment:
                _check_complete(environment, folder)
                if not environment.stat()["entries"]:
                    raise BasisError(f"{folder} contains no pictures")
                return stack_pictures(_pictures(environment, folder), size, channels)
        except lmdb.Error as error:
            raise BasisError(f"{folder} is not an lmdb that can be read: {error}") from error


def _check_complete(environment: Any, folder: Path) -> None:
    """Rejects a file that ends before its last page: reading past the end kills the process."""
    pages = environment.info()["last_pgno"] + 1
    size, needed = (folder / "data.mdb").stat().st_size, pages * environment.stat()["psize"]
    if size < needed:
        raise BasisError(f"{folder / 'data.mdb'} is cut short: it has {size} of {needed} bytes")


def _pictures(environment: Any, folder: Path) -> Iterator[tuple[Path, Image.Image]]:
    with environment.begin() as transaction:
        for number, (key, value) in enumerate(transaction.cursor()):
            if number >= MOST_PICTURES:
                return
            name = folder / key.decode("ascii", "replace")
            yield name, open_8_bit(name, value)
