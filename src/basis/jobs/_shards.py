"""The shards of a job: one file each, written whole, with a checksum of all that is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
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
            path.unlink()  # what a killed process was about to write
        for index in range(len(self)):
            if self.read(index) is not None:
                whole.add(index)
            elif self.path(index).exists():
                damaged.append(index)
                self.path(index).unlink()
        return whole, damaged

    def log(self, **row: Any) -> None:
        """Adds a row to the job's log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with one_line(self.folder / LOG), open(self.folder / LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the log; one that was cut off by a crash is left out."""
        path = self.folder / LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                if isinstance(row, dict):
                    yield row

    def remove(self) -> None:
        """Removes all shards and their log."""
        shutil.rmtree(self.folder, ignore_errors=True)


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
