"""The shards of a job, one file each, and the store that a finished job leaves.

A store is read without torch: arrays are .npy files, everything else is in store.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from basis.errors import BasisError, one_line, printable
from basis.files import (
    STORE,
    as_folder,
    check_no_link,
    check_regular,
    read_json,
    reading,
    sha256,
    whole_file,
    write_text,
)

Arrays = dict[str, np.ndarray]
"""Results by name, one row per observation."""

FOLDER, NAMES, PICTURES = "shards", "names.txt", "pictures"
_FILE = re.compile(r"[a-z]{1,32}\.npy|names\.txt")
_MOST = 1 << 48
"""Observations that a store may say it has: more than any disk holds, and few enough for `len`."""
_AGAIN = "run the job again, which makes damaged results again"


@dataclass(frozen=True)
class Made:
    """The results of a shard, and why observations failed, by their index in the shard."""

    arrays: Arrays
    failures: dict[int, str]


def blank(like: Arrays, count: int) -> Arrays:
    """Results of `count` observations that could not be used: NaN, or 0 for integers."""
    return {
        name: np.full(
            (count, *a.shape[1:]), np.nan if np.issubdtype(a.dtype, np.floating) else 0, a.dtype
        )
        for name, a in like.items()
    }


@dataclass(frozen=True)
class Shards:
    """The shards of one job.

    A shard is an uncompressed .npz, whose checksums are those of the zip format.

    Attributes:
        folder: The folder of the files.
        job: The job's checksum; shards of another job are not read.
        count: Observations in all.
        size: Observations in one shard.
    """

    folder: Path
    job: str
    count: int
    size: int

    def __len__(self) -> int:
        return -(-self.count // self.size)

    def bounds(self, index: int) -> tuple[int, int]:
        """The first observation of a shard, and the one after its last."""
        return index * self.size, min(self.count, (index + 1) * self.size)

    def path(self, index: int) -> Path:
        return self.folder / f"{index:06d}.npz"

    def write(self, index: int, made: Made) -> None:
        """Writes a shard, whole or not at all."""
        record = [self.job, self.bounds(index), {str(k): v for k, v in made.failures.items()}]
        arrays: Any = {**made.arrays, "record": np.array(json.dumps(record))}
        path = self.path(index)
        with resumable(path), whole_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)

    def read(self, index: int) -> Made | None:
        """A shard; None where there is no intact one of this job."""
        path = self.path(index)
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in sorted(file.files)}
            job, bounds, failures = json.loads(str(arrays.pop("record")))
            if job == self.job and bounds == list(self.bounds(index)):
                return Made(arrays, {int(k): v for k, v in failures.items()})
        except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile):
            pass
        return None

    def check(self) -> tuple[set[int], int]:
        """The shards that are intact, and the number of damaged ones, which are removed."""
        whole, damaged = set(), 0
        for path in self.folder.glob(".*.npz"):
            path.unlink()  # what a killed process was about to write
        for index in range(len(self)):
            path = self.path(index)
            if self.read(index) is not None:
                whole.add(index)
            elif os.path.lexists(path):
                damaged += 1
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return whole, damaged

    def remove(self) -> None:
        """Removes all shards."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def resumable(path: Path) -> Iterator[None]:
    """Turns errors in writing a job's file into one line that says how to resume."""
    try:
        yield
    except (OSError, BasisError) as error:
        ours = isinstance(error, BasisError)
        reason = str(error) if ours else f"cannot write {path}: {one_line(error)}"
        raise BasisError(
            f"{reason}; finished shards are kept: make room, and the same command resumes the job"
        ) from error


@dataclass(frozen=True)
class JobStore:
    """The results of a finished job.

    `store["sources"]` is an array with one row per observation, which is read from the disk as it
    is used.

    Attributes:
        folder: The folder.
        about: What store.json says: task, settings, files with their checksums, failures.
    """

    folder: Path
    about: dict[str, Any]

    def __len__(self) -> int:
        return int(self.about["count"])

    def __repr__(self) -> str:
        return f"JobStore({self.folder}, {len(self)} observations, {', '.join(self.arrays)})"

    def __str__(self) -> str:
        good = len(self) - len(self.failures)
        lines = [f"{good} of {len(self)} observations done"]
        for name in {"psnr", "snr"}.intersection(self.arrays):
            lines.append(f"{name.upper()} {np.nanmean(self[name]):.2f} dB")
        if "residual" in self.arrays:
            lines.append(f"residual at most {np.nanmax(self['residual']):.3g} rms")
        if "plausibility" in self.arrays and "likely" in self.about:
            values, least = self["plausibility"], self.about["likely"]
            lines.append(f"plausibility {np.nanmin(values):.2g} to {np.nanmax(values):.2g}")
            unlikely = int((values < least).sum())
            if unlikely:
                lines.append(
                    f"warning: unlikely sources in {unlikely} of {good} (plausibility below "
                    f"{least:g}); check alphas, the number of sources and the prior"
                )
        if self.failures:
            first = min(self.failures)
            name = self.names[first] if self.names else f"number {first + 1}"
            reason = printable(self.failures[first])
            lines.append(
                f"warning: {len(self.failures)} of {len(self)} could not be used (listed in "
                f"{self.folder / STORE}); the first is {printable(name)}: {reason}"
            )
        return "\n".join([*lines, f"store: {self.folder}"])

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays: sources, residual, evaluations, and others if they exist."""
        return tuple(name.removesuffix(".npy") for name in self.about["files"] if name != NAMES)

    def __getitem__(self, name: str) -> np.ndarray:
        """An array, one row per observation."""
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
        """The names of the observations, if they have any."""
        if NAMES not in self.about["files"]:
            return None
        path = self.folder / NAMES
        found = read_json(path, "the names of a store")
        if not isinstance(found, list) or [type(name) for name in found] != [str] * len(self):
            raise BasisError(f"{path} does not hold {len(self)} names; {_AGAIN}")
        return found

    @property
    def failures(self) -> dict[int, str]:
        """Why observations could not be used, by index; their rows are NaN, or 0."""
        return {int(index): reason for index, reason in self.about["failures"].items()}

    def write_pictures(self) -> Path:
        """Writes all sources as pictures into a folder inside the store, and returns it."""
        import torch

        from basis.plots.drawing import to_picture, write_picture

        folder = self.folder / PICTURES
        check_no_link(folder)
        colors = "colors" in self.arrays
        values = self["colors" if colors else "sources"]
        value_range = (0, 255) if colors else self.about.get("value_range", (0, 1))
        names = self.names or [f"{i + 1:0{len(str(len(self)))}d}" for i in range(len(self))]
        for index, name in enumerate(names):
            for i, image in enumerate(values[index] if index not in self.failures else ()):
                picture = to_picture(torch.from_numpy(image.astype(np.float32)), value_range)
                kind = "colors" if colors else "source"
                write_picture(folder / f"{name}-{kind}{i + 1}.png", picture)
        return folder

    def damaged(self) -> list[str]:
        """The files that are missing or have changed since they were written."""
        return [
            name
            for name, known in self.about["files"].items()
            if not (self.folder / name).is_file() or sha256(self.folder / name) != known
        ]


def open_store(folder: str | Path) -> JobStore:
    """The store in the folder of a finished job."""
    path = as_folder(folder, "folder") / STORE
    if not path.is_file():
        raise BasisError(f"{folder} holds no finished job: there is no {STORE} in it")
    about = read_json(path, "the record of a job")
    wrong = _complaint(about)
    if wrong:
        raise BasisError(f"{path} is not the record of a job: {wrong}")
    return JobStore(Path(folder), about)


def _complaint(about: Any) -> str:
    """What is wrong with the record of a store; nothing if it is valid."""
    if not isinstance(about, dict):
        return "it is not an object"
    for key, kind in (("count", int), ("failures", dict), ("job", str), ("files", dict)):
        if type(about.get(key)) is not kind:
            return f"its {key} must be of type {kind.__name__}"
    count = about["count"]
    if not 1 <= count <= _MOST:
        return f"its count is {count!s:.40}"
    for name, known in about["files"].items():
        if not _FILE.fullmatch(name) or not isinstance(known, str):  # no paths to other folders
            return f"its files have {name!r:.60}"
    for index, reason in about["failures"].items():
        digits = len(index) <= len(str(count)) and index.isascii() and index.isdigit()
        if not (digits and int(index) < count and isinstance(reason, str)):
            return f"its failures have {index!r:.60}"
    return ""


def assemble(
    folder: Path, shards: Shards, about: Mapping[str, Any], names: Sequence[str] | None
) -> JobStore | None:
    """Writes the store from intact shards; None if one of them turns out to be damaged."""
    like: Arrays = {}
    failures: dict[int, str] = {}
    for index in range(len(shards)):
        made = shards.read(index)
        if made is None:
            return None
        start = shards.bounds(index)[0]
        failures |= {start + i: reason for i, reason in made.failures.items()}
        if not like:
            like = {name: a[:1].copy() for name, a in made.arrays.items()}
    if not like:
        first = next(iter(failures.values()))
        raise BasisError(f"none of the {shards.count} observations could be used: {first}")
    files = {}
    for name in sorted(like):
        path = folder / f"{name}.npy"
        shape = (shards.count, *like[name].shape[1:])
        with resumable(path), whole_file(path) as temporary, open(temporary, "wb") as file:
            header = {"descr": like[name].dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for index in range(len(shards)):
                made, (start, stop) = shards.read(index), shards.bounds(index)
                if made is None:
                    raise BasisError(f"{shards.path(index)} was changed while it was read")
                part = (made.arrays or blank(like, stop - start))[name]
                file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            file.flush()
            files[path.name] = sha256(temporary)
    if names is not None:
        with resumable(folder / NAMES):
            write_text(folder / NAMES, json.dumps(list(names), indent=0) + "\n")
        files[NAMES] = sha256(folder / NAMES)
    record = {
        **about,
        "count": shards.count,
        "job": shards.job,
        "files": files,
        "failures": {str(index): failures[index] for index in sorted(failures)},
    }
    with resumable(folder / STORE):
        write_text(folder / STORE, json.dumps(record, indent=2, sort_keys=True) + "\n")
    return JobStore(folder, record)
