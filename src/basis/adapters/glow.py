"""TensorFlow's checkpoint files (index and data), read without TensorFlow.

The index is a table of sorted keys in blocks (the format of LevelDB, see its table_format.md); each
value is a small protocol buffer that says type, shape and place of a tensor in the data files
(BundleEntryProto in tensor_bundle.proto). Only whole, uncompressed tensors of numbers are read,
which is what `tf.train.Saver` writes. Nothing in the files is executed.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from basis.adapters.pickled import build_fitting
from basis.errors import BasisError, one_line
from basis.files import check_regular, reading
from basis.nn.glow import Glow, GlowConfig
from basis.priors.likelihood import Ladder, LikelihoodPrior
from basis.settings import check_fields

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
# Type numbers of types.proto.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}


@dataclass(frozen=True)
class _Entry:
    """Where a tensor lies."""

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
        prefix: The path without `.index` (the index file itself will do too).
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
    except Exception as error:  # bytes that are no such table lead anywhere
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
    """Keys and values of a block; a key repeats only what differs from the one before."""
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


_AVERAGE = "/ExponentialMovingAverage"
_NORM = {"actnorm_center/b": "bias", "actnorm_scale/logs": "logs"}
_ZERO = {"W": "conv.weight", "b": "bias", "logs": "logs"}


def _kernel(t: Tensor) -> Tensor:
    return t.permute(3, 2, 0, 1)


def _flat(t: Tensor) -> Tensor:
    return t.reshape(-1)


def _names(levels: int, depth: int, top: bool) -> dict[str, tuple[str, Callable[[Tensor], Tensor]]]:
    """Our name of each parameter, to its variable and how that is laid out anew."""
    names: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {}

    def norm(ours: str, theirs: str) -> None:
        for variable, parameter in _NORM.items():
            names[f"{ours}.{parameter}"] = (f"{theirs}/{variable}", _flat)

    def zero(ours: str, theirs: str) -> None:
        for variable, parameter in _ZERO.items():
            names[f"{ours}.{parameter}"] = (
                f"{theirs}/{variable}",
                _kernel if variable == "W" else _flat,
            )

    for level in range(levels):
        for step in range(depth):
            ours, theirs = f"flows.{level}.{step}", f"{level}/{step}"
            norm(f"{ours}.norm", theirs)
            names[f"{ours}.mix.weight"] = (f"{theirs}/invconv/W", Tensor.t)
            for number in (0, 1):
                layer = f"{theirs}/f1/l_{number + 1}"
                names[f"{ours}.coupling.conv{number}.weight"] = (f"{layer}/W", _kernel)
                norm(f"{ours}.coupling.norm{number}", layer)
            zero(f"{ours}.coupling.out", f"{theirs}/f1/l_last")
        if level < levels - 1:
            zero(f"splits.{level}", f"pool{level}/conv")
    if top:
        zero("top", "prior/p")
    return names


def from_glow(
    checkpoints: str | Path | Sequence[str | Path],
    *,
    size: int,
    sigmas: Sequence[float] = (0.0,),
    name: str = "glow",
) -> LikelihoodPrior:
    """Published checkpoints as one prior.

    Args:
        checkpoints: Their paths without `.index`, one per noise level.
        size: The side of the images, which no weight tells.
        sigmas: Their noise levels in pixels of [0, 1], for models that were fine-tuned on noisy
            images as the paper's authors did; a single 0 for a noiseless model as published, which
            has a likelihood but cannot separate.
        name: What records call the prior.
    """
    if isinstance(checkpoints, str | Path):
        checkpoints = [checkpoints]
    if len(checkpoints) != len(sigmas) or not checkpoints:
        raise BasisError(
            f"{len(checkpoints)} checkpoints and {len(sigmas)} noise levels: "
            "give one level for each"
        )
    if len(set(sigmas)) < len(sigmas) or min(sigmas) < 0 or (len(sigmas) > 1 and not all(sigmas)):
        raise BasisError(
            "noise levels must be positive and different; a noiseless model (0) stands alone"
        )
    models = {s: _read_flow(c, size, s > 0) for s, c in zip(sigmas, checkpoints, strict=True)}
    configs = {tuple(asdict(m.config).items()) for m in models.values()}
    if len(configs) > 1:
        raise BasisError("the checkpoints are of different sizes")
    model = Ladder(models) if min(sigmas) > 0 else models[0.0]
    channels = next(iter(models.values())).config.channels
    return LikelihoodPrior(model, (channels, size, size), min(sigmas), max(sigmas), name=name)


def _read_flow(prefix: str | Path, size: int, noisy: bool) -> Glow:
    """A published checkpoint as a `Glow`.

    Args:
        prefix: The checkpoint's path without `.index`.
        size: The side of its images, which no weight tells.
        noisy: Whether it was fine-tuned on noisy images v / 255 - 1/2, as the paper's authors did,
            or trained on (v + u) / 256 - 1/2 with u uniform, as published.
    """

    def wanted(name: str) -> bool:
        return re.search(r"(^|/)model/", name) is not None

    found = read_checkpoint(prefix, wanted)
    # The averaged weights, where the file holds them, are the ones to use.
    variables = {_short(n): t for n, t in found.items() if not n.endswith(_AVERAGE)}
    variables |= {
        _short(n.removesuffix(_AVERAGE)): t for n, t in found.items() if n.endswith(_AVERAGE)
    }
    config = _config(prefix, variables, size, noisy)
    names = _names(config.levels, config.depth, config.learned_top)
    missing = [theirs for theirs, _ in names.values() if theirs not in variables]
    if missing:
        raise BasisError(f"{prefix} is no published Glow: it has no variable model/{missing[0]}")
    with reading(prefix, "a published Glow"):
        weights = {ours: layout(variables[theirs]) for ours, (theirs, layout) in names.items()}
        shapes = {n: t.shape for n, t in weights.items()}
        model = build_fitting(lambda: Glow(config), shapes, f"{prefix} is no published Glow")
    wrong = [n for n, p in model.named_parameters() if n in weights and weights[n].shape != p.shape]
    if wrong:
        raise BasisError(f"{prefix}: model/{names[wrong[0]][0]} has an unexpected shape")
    model.load_state_dict(weights, strict=False)
    model.started.data.fill_(1.0)
    return model


def _short(name: str) -> str:
    """A variable's name below the scope `model`, whatever scopes are around that."""
    return name[re.search(r"(^|/)model/", name).end() :]  # type: ignore[union-attr]


def _config(prefix: str | Path, variables: dict[str, Tensor], size: int, noisy: bool) -> GlowConfig:
    steps = [m for n in variables if (m := re.fullmatch(r"(\d+)/(\d+)/invconv/W", n))]
    if not steps:
        raise BasisError(
            f"{prefix} is no published Glow: it has no variables like model/0/0/invconv/W"
        )
    if any(n.startswith("prior/y_emb/") for n in variables):
        raise BasisError(f"{prefix} is a class-conditional Glow; only unconditional ones are read")
    levels = 1 + max(int(m[1][:9]) for m in steps)
    depth = 1 + max(int(m[2][:9]) for m in steps)
    if levels * depth > len(variables):
        raise BasisError(f"{prefix} is no published Glow: it has too few variables for its steps")
    try:
        squeezed = len(variables["0/0/invconv/W"])
        width = variables["0/0/f1/l_1/W"].shape[3]
        affine = variables["0/0/f1/l_last/W"].shape[3] == squeezed
    except (KeyError, IndexError, TypeError) as error:
        raise BasisError(f"{prefix} is no published Glow: its couplings are missing") from error
    if size % 2**levels:
        raise BasisError(f"{prefix} has {levels} levels: size must be divisible by {2**levels}")
    sizes = {
        "channels": squeezed // 4,
        "size": size,
        "levels": levels,
        "depth": depth,
        "width": width,
        "coupling": "affine" if affine else "additive",
        "scale": "sigmoid",
        "lu": False,
        "learned_top": "prior/p/W" in variables,
        "mean": 0.5,
        "std": 1.0 if noisy else 256 / 255,
    }
    return GlowConfig(**check_fields(GlowConfig, sizes, str(prefix)))
