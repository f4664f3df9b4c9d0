"""What a job is told from others by: task, number and values of its mixtures, all settings."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from basis._version import __version__
from basis.errors import BasisError
from basis.files import (
    STORE,
    RunFolder,
    check_no_link,
    folder_lock,
    read_json,
    remove_files,
    write_text,
)
from basis.jobs.engines import Engine, Tasks
from basis.jobs.recipe import Made, Payload, Recipe
from basis.jobs.store import FOLDER, JobStore, Shards, assemble, one_line, open_store
from basis.jobs.streams import MixtureStream
from basis.priors.card import LIKELY
from basis.samplers.noise import content_digest


def read_record(path: Path) -> dict[str, Any] | None:
    """What a job's file says of it; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        found = read_json(path, "a job")
    except BasisError as error:
        raise BasisError(damaged_line(path)) from error
    return found if isinstance(found, dict) else {}


def damaged_line(path: Path) -> str:
    """What to say of a job's file that is no such file any more."""
    return f"{path} is damaged; give another --out, or remove {path.parent} to begin anew"


def difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What sets two jobs apart, in a few words."""
    for key in ("task", "count"):
        if was.get(key) != now[key]:
            return f"{key} {was.get(key)} -> {now[key]}"
    path = _first_change(was.get("settings"), now["settings"])
    return path or "of mixtures with other values"


def _first_change(was: Any, now: Any, path: str = "") -> str:
    """The first setting that differs, with both values; nothing where none does."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [*now, *(key for key in was if key not in now)]
        pairs = [(f"{path}.{key}".lstrip("."), was.get(key), now.get(key)) for key in keys]
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = [(path, *pair) for pair in zip(was, now, strict=True)]
    else:
        return "" if was == now else f"{path} {json.dumps(was)[:40]} -> {json.dumps(now)[:40]}"
    return next(filter(None, (_first_change(old, new, at) for at, old, new in pairs)), "")


def digest(identity: Mapping[str, Any]) -> str:
    """The mark that shards and stores carry."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


_AT_ONCE = 256


@dataclass(frozen=True)
class Survey:
    """What is known of a stream's mixtures.

    Attributes:
        fingerprint: Of all values in their order: the same input again has the same.
        occurrences: How often each mixture came before, (n,). Seeds depend on it, so that a
            mixture that is repeated is drawn anew however the job is cut into shards.
        failures: What is wrong with those that cannot be used, by index.
    """

    fingerprint: str
    occurrences: np.ndarray
    failures: dict[int, str]


def survey(stream: MixtureStream, progress: Callable[[int], None] | None = None) -> Survey:
    """Reads everything once: 16 bytes are kept of each mixture."""
    count = len(stream)
    digests = np.zeros((count, 2), dtype="<u8")
    whole = hashlib.sha256(f"{count} {stream.shape}".encode())
    failures: dict[int, str] = {}
    for start in range(0, count, _AT_ONCE):
        piece = stream.checked(start, min(count, start + _AT_ONCE))
        for place, item in enumerate(piece.mixture):
            digest = content_digest(item)
            whole.update(digest + _bytes(piece.failures.get(place, "")))
            digests[start + place] = np.frombuffer(digest[:16], dtype="<u8")
        failures |= {start + place: reason for place, reason in piece.failures.items()}
        if progress is not None:
            progress(min(count, start + _AT_ONCE))
    if len(failures) == count:
        reason = next(iter(failures.values()))
        raise BasisError(f"none of the {count} mixtures can be used; the first: {reason}")
    return Survey(whole.hexdigest(), _occurrences(digests), failures)


def _bytes(reason: str) -> bytes:
    # Names of files that are not UTF-8 have surrogates in them.
    return reason.encode(errors="surrogatepass")


def _occurrences(digests: np.ndarray) -> np.ndarray:
    """How many equal rows come before each row: (n,)."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: equal rows stay in their order
    ranked = digests[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.arange(len(order)) - starts
    return counts


JOB, RUN = "job.json", "run.json"
SHARD = 64
"""Mixtures in a shard, at least, unless told otherwise."""


@dataclass(frozen=True)
class ShardProgress:
    """Passed to a job's progress callback: mixtures done of all, and how many of those now."""

    done: int
    total: int
    now: int


@dataclass(frozen=True)
class Job:
    """What a job is: its input, what is done with it, and where the results go.

    Attributes:
        stream: The mixtures.
        recipe: What is done with them.
        settings: Everything that the results depend on beside the mixtures, as JSON writes it.
        folder: Where.
        shard: Mixtures in a shard; a whole number of the recipe's blocks.
        bytes_each: About how much is written for a mixture.
        record: What else run.json says.
    """

    stream: MixtureStream
    recipe: Recipe
    settings: Mapping[str, Any]
    folder: Path
    shard: int
    bytes_each: int
    record: Mapping[str, Any]


def run_job(
    job: Job,
    engine: Callable[[], Engine],
    progress: Callable[[ShardProgress], None] | None = None,
) -> JobStore:
    """Runs a job from wherever it was left; a finished one is only looked over."""
    with folder_lock(job.folder):
        _check_places(job.folder)
        found = survey(job.stream)
        settings = json.loads(json.dumps({**job.settings, **_versions()}, default=str))
        identity, shards = _open_shards(job, found, settings)
        known = _finished(job.folder, shards.job, shards.count)
        if known is not None:
            shards.remove()
            if progress is not None:
                progress(ShardProgress(len(known), len(known), 0))
            return known
        if not (job.folder / JOB).exists():
            record = {**identity, "job": shards.job, "shard": shards.size}
            with one_line(job.folder / JOB):
                text = json.dumps(record, indent=2, sort_keys=True) + "\n"
                write_text(job.folder / JOB, text)
        _sweep(job.folder)
        whole, damaged = shards.check()
        _check_room(job, len(whole) / len(shards))
        started = time.time()
        while True:
            for index in damaged:
                shards.log(damaged=index)
            if len(whole) < len(shards):
                _make(job, found, shards, whole, engine(), progress)
            made = assemble(
                job.folder, shards, {"task": job.recipe.task, "settings": settings},
                job.stream.names,
            )  # fmt: skip
            if isinstance(made, JobStore):
                break
            whole, damaged = shards.check()
        _write_run(job, shards, made, time.time() - started)
        shards.remove()
        (job.folder / JOB).unlink(missing_ok=True)
        return made


_RESULTS = re.compile(
    r"(sources|samples|energies|residual|evaluations|psnr|plausibility|colours|difference)\.npy"
    r"|names\.txt|(store|job|run)\.json"
)
_OURS = re.compile(
    r"\.(sources|samples|energies|residual|evaluations|psnr|plausibility|colours|difference|names|store|job|run)"
    r"-\w+\.(npy|json|txt)"
)


def _check_places(folder: Path) -> None:
    """Refuses a folder where a file of the job's is a folder, a pipe or a device, or where its
    folder of shards is a symbolic link.
    """
    check_no_link(folder / FOLDER)
    for path in folder.iterdir():
        if _RESULTS.fullmatch(path.name) and path.exists() and not path.is_file():
            raise BasisError(f"{path} is no regular file; remove it, or give another --out")
        if path.name == FOLDER and not path.is_dir():
            raise BasisError(f"{path} is no folder; remove it, or give another --out")


def _sweep(folder: Path) -> None:
    """Removes what a killed process was about to write."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            path.unlink()


def shard_size(asked: int | None, block: int, count: int) -> int:
    """The mixtures of a shard: a whole number of blocks, at least as many as asked for."""
    wanted = min(asked or SHARD, count)
    return max(block, -(-wanted // block) * block)


def _versions() -> dict[str, Any]:
    # Another version may round differently, and a store is of one piece.
    return {"versions": {"basis": __version__, "torch": torch.__version__}}


def _open_shards(
    job: Job, found: Survey, settings: dict[str, Any]
) -> tuple[dict[str, Any], Shards]:
    """What the job is, and the shards of a new one or of the one that the folder holds already."""
    identity = {
        "task": job.recipe.task,
        "count": len(job.stream),
        "input": found.fingerprint,
        "settings": settings,
    }
    mark = digest(identity)
    size = job.shard
    for name in (JOB, STORE):
        other = read_record(job.folder / name)
        if other is None:
            continue
        if other.get("job") != mark:
            raise BasisError(
                f"{job.folder} holds another job ({difference(other, identity)}); give the same "
                "command to go on with that one, or another --out"
            )
        kept = other.get("shard", size)
        if type(kept) is not int or kept < 1 or kept % job.recipe.block:
            raise BasisError(damaged_line(job.folder / name))
        size = kept
    return identity, Shards(job.folder / FOLDER, mark, len(job.stream), size)


def _finished(folder: Path, mark: str, count: int) -> JobStore | None:
    """The store of this job, as long as it is whole; a damaged one is removed."""
    if not (folder / STORE).is_file():
        return None
    store = open_store(folder)
    if store.about["job"] == mark and len(store) == count and not store.damaged():
        return store
    (folder / STORE).unlink()
    print(f"basis: {folder} was damaged after it was finished; it is made again", file=sys.stderr)
    return None


def _check_room(job: Job, done: float) -> None:
    """Refuses a job whose results the disk has no room for.

    Args:
        job: The job.
        done: The share of its shards that are there already.
    """
    need = int(len(job.stream) * job.bytes_each * (2 - done))  # in shards, and then in the store
    free = shutil.disk_usage(job.folder).free
    if need > free:
        raise BasisError(
            f"{job.folder} has room for {free / 1e6:,.1f} MB, and this job writes about "
            f"{need / 1e6:,.1f} MB; make room or give another --out"
        )


def _make(
    job: Job,
    found: Survey,
    shards: Shards,
    whole: set[int],
    engine: Engine,
    progress: Callable[[ShardProgress], None] | None,
) -> None:
    """Makes the missing shards and writes each as it comes."""
    began: dict[int, float] = {}

    def tasks() -> Tasks:
        for index in range(len(shards)):
            if index in whole:
                continue
            start, stop = shards.bounds(index)
            piece = job.stream.checked(start, stop)
            began[index] = time.perf_counter()
            shards.log(started=index)
            yield (
                index,
                Payload(
                    piece.mixture.numpy(),
                    found.occurrences[start:stop].tolist(),
                    {i - start: r for i, r in found.failures.items() if start <= i < stop},
                    None if piece.truth is None else piece.truth.numpy(),
                ),
            )

    sizes = {index: shards.bounds(index)[1] - shards.bounds(index)[0] for index in whole}
    done = first = sum(sizes.values())
    if progress is not None:
        progress(ShardProgress(done, shards.count, 0))
    running: Iterator[tuple[int, Made]] = engine.run(job.recipe, tasks())
    try:
        for index, made in running:
            came = time.perf_counter()
            shards.write(index, made)
            now = time.perf_counter()
            shards.log(
                done=index, seconds=round(came - began.pop(index), 4), write=round(now - came, 4)
            )
            start, stop = shards.bounds(index)
            done += stop - start
            if progress is not None:
                progress(ShardProgress(done, shards.count, done - first))
    finally:
        running.close()  # type: ignore[attr-defined]
    whole |= set(range(len(shards)))


def _write_run(job: Job, shards: Shards, store: JobStore, seconds: float) -> None:
    """run.json: how the job went, which is not the same every time."""
    rows = list(shards.rows())
    started = [row["started"] for row in rows if "started" in row]
    done = [row for row in rows if "done" in row]
    record = {
        **job.record,
        "mixtures": shards.count,
        "failed": len(store.failures),
        "shards": len(shards),
        "mixtures_per_shard": shards.size,
        "shards_started": len(started),
        "shards_started_again": len(started) - len(set(started)),
        "shards_damaged": sum("damaged" in row for row in rows),
        "seconds_of_last_run": round(seconds, 3),
        "shard_seconds": [row["seconds"] for row in done],
        "write_seconds": [row["write"] for row in done],
    }
    if "plausibility" in store.arrays:
        record["plausible"] = int((store["plausibility"] >= LIKELY).sum())
    earlier = RunFolder(job.folder, RUN).earlier()
    with one_line(job.folder / RUN):
        write_text(job.folder / RUN, json.dumps(record, indent=2) + "\n")
    remove_files(job.folder, {n for n in earlier if not _RESULTS.fullmatch(n)})
