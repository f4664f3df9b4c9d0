"""The idx format of the MNIST files: a magic number, the sizes, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from basis._errors import BasisError
from basis._reading import check_fits_memory, check_regular, reading
from basis.data._places import plain_or_gz

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
