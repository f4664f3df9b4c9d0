"""The shards of a job: one file each, written whole, with a checksum of all that is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from basis.errors import BasisError
from basis.files import STORE, check_regular, read_json, reading, sha256, whole_file, write_text
from basis.jobs.recipe import Arrays, Made, blank

FOLDER = "shards"
LOG = "log.jsonl"


@dataclass(frozen=True)
class Shards:
    """The shards of one job.

    Attributes:
        folder: Where the files lie.
        job: The job's fingerprint; shards of another job count as none.
        count: Mixtures in all.
        size: Mixtures in one.
    """

    folder: Path
    job: str
    count: int
    size: int

    def __len__(self) -> int:
        return -(-self.count // self.size)

    def bounds(self, index: int) -> tuple[int, int]:
        """The first mixture of a shard, and the one after its last."""
        return index * self.size, min(self.count, (index + 1) * self.size)

    def path(self, index: int) -> Path:
        return self.folder / f"{index:06d}.safetensors"

    def write(self, index: int, made: Made) -> None:
        """Writes a shard, whole or not at all."""
        arrays = {name: np.ascontiguousarray(a) for name, a in made.arrays.items()}
        record = json.dumps(
            {
                "job": self.job,
                "bounds": self.bounds(index),
                "failures": {str(k): v for k, v in made.failures.items()},
            },
            sort_keys=True,
        )
        metadata = {"record": record, "sha256": _checksum(record, arrays)}
        with one_line(self.path(index)), whole_file(self.path(index)) as path:
            save_file(arrays, path, metadata)

    def read(self, index: int) -> Made | None:
        """A shard; None where there is none that is whole, and of this job."""
        path = self.path(index)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata()
                record = metadata["record"]
                arrays = {n: file.get_tensor(n) for n in sorted(file.keys())}
            parsed = json.loads(record)
            if metadata["sha256"] != _checksum(record, arrays) or parsed["job"] != self.job:
                return None
            if parsed["bounds"] != list(self.bounds(index)):
                return None
            return Made(arrays, {int(k): v for k, v in parsed["failures"].items()})
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return None

    def check(self) -> tuple[set[int], list[int]]:
        """Which shards are there and whole, and which were there and are not; those are removed."""
        whole, damaged = set(), []
        for path in self.folder.glob(".*.safetensors"):
            _remove(path)  # what a killed process was about to write
        if not _is_plain(self.folder / LOG):
            _remove(self.folder / LOG)  # a pipe would be waited for, a link leads elsewhere
        for index in range(len(self)):
            if self.read(index) is not None:
                whole.add(index)
            elif os.path.lexists(self.path(index)):
                damaged.append(index)
                _remove(self.path(index))
        return whole, damaged

    def log(self, **row: Any) -> None:
        """Adds a row to the job's log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with one_line(self.folder / LOG), open(self.folder / LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the log; one that was cut off by a crash or damaged is left out."""
        path = self.folder / LOG
        if not _is_plain(path):
            return
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if _is_row(row, len(self)):
                    yield row

    def remove(self) -> None:
        """Removes all shards and their log."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_plain(path: Path) -> bool:
    """Whether a regular file is there under this very name."""
    return path.is_file() and not path.is_symlink()


def _remove(path: Path) -> None:
    """Removes whatever is there under a name of ours, if anything."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_row(row: Any, shards: int) -> bool:
    """Whether a row of the log says what one of ours says."""
    if not isinstance(row, dict) or len(row) not in (1, 3):
        return False
    kind, index = next(iter(row.items()))
    if type(index) is not int or not 0 <= index < shards:
        return False
    if kind != "done":
        return kind in ("started", "damaged")
    times = (row.get("seconds"), row.get("write"))
    return all(isinstance(t, int | float) and 0 <= t < float("inf") for t in times)


@contextmanager
def one_line(path: Path) -> Iterator[None]:
    """What goes wrong in writing a job's file, as one line that says how to go on."""
    try:
        yield
    except (OSError, SafetensorError, BasisError) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or ["unknown"])[0]
        if not isinstance(error, BasisError):
            reason = f"cannot write {path}: {reason}"
        raise BasisError(
            f"{reason}; what was done before is kept: make room, and the same command goes on"
        ) from error


def _checksum(record: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(record.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


NAMES = "names.txt"
_FILE = re.compile(r"[a-z]{1,32}\.npy|names\.txt")
_MOST = 1 << 48
"""Mixtures that a store may say it has: more than any disk holds, and few enough for `len`."""
_AGAIN = "run the job again, which makes anew what was damaged"


@dataclass(frozen=True)
class JobStore:
    """What a finished job left.

    Attributes:
        folder: Where it is.
        about: What store.json says: task, settings, seed, files with their checksums, failures.
    """

    folder: Path
    about: dict[str, Any]

    def __len__(self) -> int:
        return int(self.about["count"])

    def __repr__(self) -> str:
        return f"JobStore({self.folder}, {len(self)} mixtures, {', '.join(self.arrays)})"

    @property
    def arrays(self) -> tuple[str, ...]:
        """Which arrays there are: sources, residual, evaluations, and psnr, samples and energies
        where they were to be had.
        """
        return tuple(name.removesuffix(".npy") for name in self.about["files"] if name != NAMES)

    def __getitem__(self, name: str) -> np.ndarray:
        """An array, one row per mixture, read from the disk as it is used."""
        if name not in self.arrays:
            raise BasisError(f"{self.folder} has no {name}; it has {', '.join(self.arrays)}")
        path = self.folder / f"{name}.npy"
        check_regular(path)
        with reading(path, "an array of this store", _AGAIN):
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
            if array.ndim < 1 or len(array) != len(self):
                raise ValueError(f"{len(self)} rows were written, it has shape {array.shape}")
        return array

    @property
    def names(self) -> list[str] | None:
        """What the mixtures are called, where they have names."""
        if NAMES not in self.about["files"]:
            return None
        path = self.folder / NAMES
        found = read_json(path, "the names of a store")
        if not isinstance(found, list) or [type(name) for name in found] != [str] * len(self):
            raise BasisError(f"{path} does not hold the names of {len(self)} mixtures; {_AGAIN}")
        return found

    @property
    def failures(self) -> dict[int, str]:
        """Why mixtures could not be used, by index; their rows are NaN, or 0."""
        return {int(index): reason for index, reason in self.about["failures"].items()}

    def damaged(self) -> list[str]:
        """The files whose checksums are not those they were written with."""
        return [
            name
            for name, known in self.about["files"].items()
            if not (self.folder / name).is_file() or sha256(self.folder / name) != known
        ]


def open_store(folder: str | Path) -> JobStore:
    """The store in a folder that a finished job left."""
    path = Path(folder) / STORE
    if not path.is_file():
        raise BasisError(f"{folder} holds no finished job: there is no {STORE} in it")
    about = read_json(path, "the record of a job")
    wrong = _complaint(about)
    if wrong:
        raise BasisError(f"{path} is not the record of a job: {wrong}")
    return JobStore(Path(folder), about)


def _complaint(about: Any) -> str:
    """What is wrong with the record of a store; nothing where it is as we write it."""
    if not isinstance(about, dict):
        return "it is no object of entries"
    for key, kind in (("count", int), ("failures", dict), ("job", str), ("files", dict)):
        if type(about.get(key)) is not kind:
            return f"its {key} is no {kind.__name__}"
    count = about["count"]
    if not 1 <= count <= _MOST:
        return f"its count is {count!s:.40}"
    for name, known in about["files"].items():
        # Names lead to files: those of ours alone, so that none lies elsewhere.
        if not _FILE.fullmatch(name) or not isinstance(known, str):
            return f"its files have {name!r:.60}"
    for index, reason in about["failures"].items():
        digits = len(index) <= len(str(count)) and index.isascii() and index.isdigit()
        if not (digits and int(index) < count):
            return f"its failures have {index!r:.60}"
        if not isinstance(reason, str):
            return f"its failure {index} is no text"
    return ""


def assemble(
    folder: Path, shards: Shards, about: Mapping[str, Any], names: Sequence[str] | None
) -> JobStore | list[int]:
    """Writes the store from whole shards, or says which shards turned out to be damaged."""
    like, failures, damaged = _look(shards)
    if damaged:
        return damaged
    if not like:
        raise BasisError(
            f"none of the {shards.count} mixtures could be used: {next(iter(failures.values()))}"
        )
    files = {}
    for name in sorted(like):
        path = folder / f"{name}.npy"
        shape = (shards.count, *like[name].shape[1:])
        with one_line(path), whole_file(path) as temporary:
            digest = _write_array(temporary, _rows(shards, name, like), shape, like[name].dtype)
        files[f"{name}.npy"] = digest
    if names is not None:
        with one_line(folder / NAMES):
            write_text(folder / NAMES, json.dumps(list(names), indent=0) + "\n")
        files[NAMES] = sha256(folder / NAMES)
    record = {
        **about,
        "count": shards.count,
        "job": shards.job,
        "files": files,
        "failures": {str(index): failures[index] for index in sorted(failures)},
    }
    with one_line(folder / STORE):
        write_text(folder / STORE, json.dumps(record, indent=2, sort_keys=True) + "\n")
    return JobStore(folder, record)


def _look(shards: Shards) -> tuple[Arrays, dict[int, str], list[int]]:
    """One row of each array, all failures, and the shards that are not whole."""
    like: Arrays = {}
    failures: dict[int, str] = {}
    damaged = []
    for index in range(len(shards)):
        made = shards.read(index)
        if made is None:
            damaged.append(index)
            continue
        start = shards.bounds(index)[0]
        failures |= {start + place: reason for place, reason in made.failures.items()}
        if not like and made.arrays:
            like = {name: a[:1].copy() for name, a in made.arrays.items()}
    return like, failures, damaged


def _rows(shards: Shards, name: str, like: Arrays) -> Iterator[np.ndarray]:
    for index in range(len(shards)):
        made = shards.read(index)
        if made is None:
            raise BasisError(f"{shards.path(index)} was changed by something else meanwhile")
        start, stop = shards.bounds(index)
        yield made.arrays[name] if made.arrays else blank(like, stop - start)[name]


def _write_array(
    path: Path, rows: Iterator[np.ndarray], shape: tuple[int, ...], dtype: np.dtype
) -> str:
    """Writes an .npy piece by piece; returns its checksum."""
    with open(path, "wb") as file:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
        for piece in rows:
            file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
