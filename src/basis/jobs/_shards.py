"""The shards of a job: one file each, written whole, with a checksum of all that is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from basis._errors import BasisError
from basis._files import whole_file
from basis.jobs._recipe import Made

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
