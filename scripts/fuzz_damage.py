"""What `scripts/fuzz.py` does to good files: bytes, entries, headers, shapes, kinds of files."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

NUMBERS = (
    "0", "-1", "1", "2", "3", "nan", "inf", "-inf", "1e309", "1e-320", "0.5", "1.5", "-0.0", "1e6",
    "999999999999999999999999", "9223372036854775807", "9223372036854775808", "4294967296", "0x10",
    "", " ", "abc", "1_0", "٣", "1e3", "--", "1\n2", "\x1b[31m", "100000", "65537", "1e-9",
)  # fmt: skip
TEXTS = (
    "", "x", "../../x", "/etc/passwd", "hf:a/b", "a/b", "~", "~nobody/x", "\n", "a\nb", "\x1b[2J",
    "a" * 300, "\udcff\udcfe", "%s%n", "$(id)", "sample", "mnist", "cifar10", "tiny", "-", ".",
    "..", "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/environ", "CON", "é", "\u202e",
    "*", "::", "sample:3", "sample:99999999999999999999", "sample:-1",
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1, 1.5, 1e300, 10**30, float("nan"), float("inf"), "", "x", "\n", [],
    {}, [1], [[]], {"a": 1}, [10**9, 10**9], [1, 2, 3, 4, 5, 6, 7, 8, 9], "unet", "glow", 65_536,
    [60_000] * 60, 2**40, -(2**70), [None], ["1"], "a" * 100_000, "\x1b[31m\u202e",
)  # fmt: skip


def damage(rng: random.Random, path: Path) -> str:
    """Does something to a file, and says what."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        return damage(rng, rng.choice(files)) if files else "left alone"
    ways: list[Callable[[random.Random, Path], None]] = [_flip, _cut, _stretch, _overwrite, _swap]
    if path.suffix == ".json":
        ways += [_entry] * 12
    elif path.suffix in (".jsonl", ".yml"):
        ways += [_line] * 6
    elif path.suffix == ".safetensors":
        ways += [_header] * 8
    elif path.suffix == ".npz":
        ways += [_member] * 5
    elif path.suffix == ".npy":
        ways += [_shape] * 3
    elif path.name.endswith("_batch") or path.name.startswith("data_batch"):
        ways += [_pickle] * 4
    way = rng.choice([*ways, _special] if rng.random() < 0.3 else ways)
    try:
        way(rng, path)
    except (
        ValueError,
        KeyError,
        OSError,
        AttributeError,
        TypeError,
        struct.error,
        zipfile.BadZipFile,
    ):
        path.write_bytes(rng.randbytes(64))  # it was damaged before
    return f"{way.__name__.strip('_')} {path.name}"


def _flip(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 30])):
        if data:
            data[rng.randrange(min(len(data), rng.choice([16, 200, 10**9])))] = rng.randrange(256)
    path.write_bytes(data)


def _cut(rng: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.choice([0, 1, 7, len(data) // 2, max(0, len(data) - 3)])])


def _stretch(rng: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice([1, 100, 5000])))


def _overwrite(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    at, filler = rng.randrange(len(data) + 1), rng.choice([b"\0", b"\xff", b"9", b"[", b"\x42"])
    data[at : at + rng.choice([4, 8, 64])] = filler * rng.choice([4, 8, 64])
    path.write_bytes(data)


def _swap(rng: random.Random, path: Path) -> None:
    """The bytes of a file of another kind under this one's name."""
    path.write_bytes(
        rng.choice(
            [
                b"",
                b"\0" * 100,
                b"{}",
                b"[]",
                b"null",
                b"PK\x05\x06" + b"\0" * 18,
                b"\x1f\x8b\x08",
                b"\x80\x02cos\nsystem\n(S'exit 9'\ntR.",
                b"%!PS-Adobe-3.0",
                b"\x89PNG\r\n\x1a\n",
                b"GIF89a",
                b"\x93NUMPY",
                b"\xff" * 8,
                "é".encode("latin-1"),
                rng.randbytes(300),
            ]
        )
    )


def _special(rng: random.Random, path: Path) -> None:
    """Something that is no file of bytes under this name."""
    path.unlink()
    kind = rng.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/nowhere"]))
    # else: it is not there at all


def _places(value, path=()) -> list[tuple]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


def _entry(rng: random.Random, path: Path) -> None:
    """A JSON file with an entry changed, taken away or added."""
    value = json.loads(path.read_text())
    _change(rng, value)
    path.write_text(json.dumps(value))


def _change(rng: random.Random, value: dict) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = _places(value)
        place = rng.choice(places)
        at = value
        for key in place[:-1]:
            at = at[key]
        if rng.random() < 0.15:
            at.pop(place[-1], None)
        elif rng.random() < 0.1:
            at["unknown"] = rng.choice(VALUES)
        else:
            at[place[-1]] = rng.choice(VALUES)


def _line(rng: random.Random, path: Path) -> None:
    lines = path.read_text().splitlines() or [""]
    at = rng.randrange(len(lines))
    key = lines[at].split(":")[0]
    lines[at] = rng.choice(
        [f"{key}: {rng.choice(NUMBERS)}", json.dumps(rng.choice(VALUES)), "[" * 3000, "",
         json.dumps({"step": rng.choice(VALUES), "images": rng.choice(VALUES)}),
         json.dumps({"step": 1, "images": 2, "loss": rng.choice(VALUES)}),
         json.dumps({"step": 1, "images": 2, "held_out": rng.choice(VALUES)})]
    )  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def _header(rng: random.Random, path: Path) -> None:
    """A safetensors file with its header changed: shapes, types, places, metadata."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    told = next((k for k in ("training", "classifier", "record") if k in metadata), None)
    if told and rng.random() < 0.7:
        inner = json.loads(metadata[told])
        _change(rng, inner)
        metadata[told] = json.dumps(inner)
    else:
        _change(rng, header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _member(rng: random.Random, path: Path) -> None:
    """An .npz with a member changed: another name, shape, type, or a bomb of zeros."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    way = rng.randrange(6)
    if way == 0:
        members[rng.choice(["../x.npy", "x.txt", "images", "\n.npy"])] = members.pop(name)
    elif way == 1:
        members[name] = members[name][: rng.choice([0, 5, 100])]
    elif way == 2:
        members[name] = _npy(rng) + bytes(rng.choice([0, 100]))
    elif way == 3:
        members[name] = _npy(rng, "(20000000, 1, 8, 8)") + bytes(64 * 10**6)
    elif way == 4:
        members = {}
    else:
        members[name] = rng.randbytes(50)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for key, data in members.items():
            archive.writestr(key, data)


def _npy(rng: random.Random, shape: str = "") -> bytes:
    shape = shape or rng.choice(
        ["()", "(0,)", "(1, 8, 8)", "(999999999999,)", "(-1, 8)", "(8, 8)", "(1, 1, 0, 8)",
         "(2, 3, 4, 5)", "(1, 2, 1, 8, 8)", "(1" + ", 1" * 40 + ")", "(True, 8)", "'x'",
         "(1, 1, 8, 8)"]
    )  # fmt: skip
    kind = rng.choice(
        ["|u1", "<f4", "<f8", "|O", "<c8", "|b1", "|S0", "<M8[s]", "|V4", "<i8", "x", "<f2"]
    )
    order = rng.choice(["True", "False"])
    text = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _shape(rng: random.Random, path: Path) -> None:
    path.write_bytes(_npy(rng) + rng.randbytes(rng.choice([0, 64, 256, 4096])))


def _pickle(rng: random.Random, path: Path) -> None:
    import numpy as np

    rebuild = np.empty(0).__reduce__()[0]

    class Odd:
        def __reduce__(self):
            kind = rng.choice(["V8", "O", "u1", "f8", "V8"])
            flags = rng.choice([0, 1, 63, 255, -1])
            kept = (rng.choice([3, 4]), "|", None, None, None, 8, 8, flags)
            return (np.dtype, (kind, False, True), kept)

    class Array:
        def __reduce__(self):
            shape = rng.choice([(1, 3072), (2**40,), (-1, 3072), (1,), ()])
            state = (1, shape, Odd(), rng.choice([False, True]), b"\x42" * rng.choice([8, 3072]))
            return (rebuild, (np.ndarray, (0,), b"b"), state)

    class Call:
        def __reduce__(self):
            return (rng.choice([os.system, print, eval]), ("1",))

    data = rng.choice([Array(), Call(), np.zeros((1, 3072)), np.zeros((2, 3072), "u1"), b"x", 3])
    labels = rng.choice([[0], [True], ["x"], 7, [10**30], [0, 1]])
    value = rng.choice([{b"data": data, b"labels": labels}, [data], data])
    path.write_bytes(pickle.dumps(value, protocol=rng.choice([0, 1, 2, 4, 5])))
