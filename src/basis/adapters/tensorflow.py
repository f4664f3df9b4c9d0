"""TensorFlow's checkpoint files (index and data), read without TensorFlow.

The index is a table of sorted keys in blocks (the format of LevelDB, see its table_format.md); each
value is a small protocol buffer with the type, shape and position of a tensor in the data files
(BundleEntryProto in tensor_bundle.proto). Only whole, uncompressed tensors of numbers are read,
which is what `tf.train.Saver` writes. Nothing in the files is executed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError, one_line
from basis.files import check_regular

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
# Type numbers of types.proto.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}


@dataclass(frozen=True)
class _Entry:
    """The position of a tensor in the data files."""

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int


def read_checkpoint(
    prefix: str | Path, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, Tensor]:
    """The tensors of a checkpoint by the names of their variables.

    Args:
        prefix: The path without `.index` (the index file itself is accepted too).
        wanted: Which variables to read; optimizer slots are often two thirds of a file.

    Returns:
        Tensors of any shape, with the axes in the order of TensorFlow.
    """
    prefix = str(prefix).removesuffix(".index")
    index = Path(f"{prefix}.index")
    try:
        check_regular(index)
        table = index.read_bytes()
    except (BasisError, OSError) as error:
        raise BasisError(
            f"{index} cannot be read ({one_line(error)}): give the prefix of an index file, as in "
            "model.ckpt for model.ckpt.index and model.ckpt.data-00000-of-00001"
        ) from error
    try:
        entries, shards = _read_index(table)
        return {n: _read_tensor(prefix, e, shards) for n, e in entries.items() if wanted(n)}
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # of bytes that are not such a table
        raise BasisError(
            f"{index} is not a TensorFlow checkpoint, or damaged: {one_line(error)}"
        ) from error


def _read_index(table: bytes) -> tuple[dict[str, _Entry], int]:
    if len(table) < _FOOTER or struct.unpack("<Q", table[-8:])[0] != _MAGIC:
        raise ValueError("it does not end as an index does")
    footer = table[-_FOOTER:]
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    entries: dict[str, _Entry] = {}
    shards = 1
    for _, value in _block(table, offset, size):
        first, length, _ = _handle(value, 0)
        for key, entry in _block(table, first, length):
            if key:
                entries[key.decode("utf-8")] = _entry(entry)
            else:
                shards = _header(entry)
    return entries, shards


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block; a key holds only what differs from the previous one."""
    if offset + size + 5 > len(table):
        raise ValueError("a block lies beyond its end")
    if table[offset + size] != 0:
        raise ValueError("its blocks are compressed; save it again with a Saver of TensorFlow 1.2+")
    block = table[offset : offset + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Offset and size of a block, and where the next thing starts."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is longer than 64 bits")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values of a protocol buffer."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(message, at)
        elif wire == 2:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            value, at = message[at : at + width], at + width
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")
        yield tag >> 3, value


def _header(message: bytes) -> int:
    """The number of data files."""
    shards, big_endian = 1, 0
    for number, value in _fields(message):
        if number == 1 and isinstance(value, int):
            shards = value
        if number == 2 and isinstance(value, int):
            big_endian = value
    if big_endian:
        raise ValueError("it was written on a big-endian machine")
    return shards


def _entry(message: bytes) -> _Entry:
    kind = shard = offset = size = 0
    shape: list[int] = []
    for number, value in _fields(message):
        if number == 2 and isinstance(value, bytes):
            for field, dim in _fields(value):
                if field == 2 and isinstance(dim, bytes):
                    sizes = [v for n, v in _fields(dim) if n == 1 and isinstance(v, int)]
                    shape.append(sizes[0] if sizes else 0)
        elif number == 7:
            raise ValueError("a variable is saved in slices")
        elif isinstance(value, int):
            if number == 1:
                kind = value
            elif number == 3:
                shard = value
            elif number == 4:
                offset = value
            elif number == 5:
                size = value
    return _Entry(kind, tuple(shape), shard, offset, size)


def _read_tensor(prefix: str, entry: _Entry, shards: int) -> Tensor:
    if entry.kind not in _TYPES:
        raise ValueError(f"a variable has the unknown type {entry.kind}")
    dtype = np.dtype(_TYPES[entry.kind])
    if math.prod(entry.shape) * dtype.itemsize != entry.size:
        raise ValueError("a variable's size is not that of its shape")
    path = Path(f"{prefix}.data-{entry.shard:05d}-of-{shards:05d}")
    try:
        check_regular(path)
    except BasisError as error:
        raise BasisError(f"{path} cannot be read: {error}") from error
    if entry.offset + entry.size > path.stat().st_size:
        raise BasisError(f"{path} is cut short: a variable lies beyond its end")
    try:
        with open(path, "rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
    except OSError as error:
        raise BasisError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) < entry.size:
        raise BasisError(f"{path} is cut short: a variable lies beyond its end")
    return torch.from_numpy(np.frombuffer(data, dtype).reshape(entry.shape).copy())
