"""`separate_job` and `colorize_job`: any number of observations into a folder, in shards."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from basis._inputs import check_alphas, load_priors, make_mixing, make_plan
from basis.errors import BasisError, printable
from basis.files import (
    STORE,
    RunFolder,
    as_folder,
    check_no_link,
    folder_lock,
    read_json,
    remove_files,
    write_text,
)
from basis.jobs.identity import Survey, card_checksum, checksum, difference, identify, survey
from basis.jobs.store import FOLDER, JobStore, Shards, assemble, open_store, resumable
from basis.jobs.streams import Observations, ObservationStream, as_stream
from basis.jobs.work import Payload, Task
from basis.jobs.workers import Payloads, run_workers
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.plots.drawing import write_picture
from basis.plots.panels import pictures_panel, separation_panel
from basis.priors.card import LIKELY
from basis.priors.prior import Prior
from basis.progress import bar_size
from basis.samplers.sampler import Sampler
from basis.search.plan import Plan
from basis.settings import Estimate

Priors = str | Path | Prior | Sequence[str | Path | Prior]
JOB, RUN = "job.json", "run.json"
_ROWS = 24  # observations in the panel
SHARD = 64
"""Observations in a shard by default, at least."""


@dataclass(frozen=True)
class ShardProgress:
    """Passed to a job's progress callback after every shard.

    Attributes:
        done, total: Observations done of all.
        now: How many of those were done in this run.
    """

    done: int
    total: int
    now: int


OnShard = Callable[[ShardProgress], None]
_EVERY = 30.0  # seconds between lines if there is no terminal


def separate_job(
    observations: Observations,
    prior: Priors,
    alphas: Sequence[float | None] | Literal["unknown"] | None = None,
    *,
    out: str | Path | None = None,
    mixing: Mixing | None = None,
    sources: int | Literal["unknown"] | None = None,
    noise: float = 0.0,
    mask: Any = None,
    method: str | int | Sampler | Plan = "balanced",
    estimate: Estimate = "mode",
    samples: int | None = None,
    seed: int = 0,
    device: str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    scheduler: str | None = None,
    shard: int | None = None,
    progress: bool | OnShard | None = None,
) -> JobStore:
    """Separates any number of observations into a folder, in shards.

    A job that was stopped in any way is resumed by the same call; at most the shards under way are
    lost. The store is the same bit for bit however the job was cut, stopped or spread over workers
    with processors of one kind. An observation that cannot be used fails alone.

    Args:
        observations: A folder of pictures, paths of files with one observation each, an .npy that
            is read piece by piece, an array (n, channels, *size), or an `ObservationStream`.
        prior: One for all sources or one per source; a name or folder, which every worker loads
            once, or a prior.
        out: The folder. A folder that holds another job is an error.
        alphas, mixing, sources, noise, mask, method, estimate, samples, seed: As in `separate`.
            With `samples` the store holds them too.
        device: Where to compute: "cpu" (the default), "cuda", or "auto", a worker's own GPU where
            it has one.
        batch_size: As in `separate`.
        workers: Processes on this machine, for which a script needs a line
            `if __name__ == "__main__":`; 1 is a thread of this process. By default as many
            threads as torch has, or a process for each of several GPUs.
        scheduler: The address of a Dask scheduler whose workers to use.
        shard: Observations in a shard; rounded up to a whole number of batches.
        progress: True for a progress bar, or lines if there is no terminal; or a function that is
            called with a `ShardProgress` after every shard. By default a bar on a terminal.
    """
    folder = as_folder(out)
    given = _priors(prior)
    loaded = load_priors(list(given))
    arguments: dict[str, Any] = {
        "alphas": alphas, "mixing": mixing, "sources": sources, "noise": noise, "mask": mask,
        "method": method, "estimate": estimate, "samples": samples, "seed": seed,
        "batch_size": batch_size,
    }  # fmt: skip
    chains, shape = _widest(loaded, arguments)
    stream = as_stream(observations, shape)
    if alphas is None and mixing is None and sources is None:
        arguments["alphas"] = stream.alphas
    task = Task(
        "separate",
        given,
        max(1, batch_size // chains),
        arguments,
        device or "cpu",
        _checksums(given, loaded),
    )
    job = _Job(stream, task, loaded, folder, shard)
    return job.run(workers, scheduler, progress)


def colorize_job(
    photos: Observations,
    prior: str | Path | Prior = "cifar10",
    *,
    out: str | Path | None = None,
    device: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    shard: int | None = None,
    progress: bool | OnShard | None = None,
    **arguments: Any,
) -> JobStore:
    """Colorizes any number of gray photos of one size into a folder, in shards.

    The store holds `colors`, uint8 (n, samples, 3, height, width), and in `difference` the largest
    distance between their mean and the photo, in 8-bit steps.

    Args:
        photos: As `separate_job` takes observations, (n, 1, height, width) in [0, 1].
        prior: Of color images.
        out, device, workers, scheduler, shard, progress: As in `separate_job`.
        arguments: Of `colorize`.
    """
    folder = as_folder(out)
    given = _priors(prior)
    loaded = load_priors(list(given))
    stream = as_stream(photos, mean=True)
    samples = arguments.get("samples")
    chains = (samples or 1) * (3 if arguments.get("diverse") else 1)
    task = Task(
        "colorize",
        given,
        max(1, arguments.get("batch_size", 128) // chains),
        arguments,
        device or "cpu",
        _checksums(given, loaded),
    )
    return _Job(stream, task, loaded, folder, shard).run(workers, scheduler, progress)


def _widest(priors: list[Prior], arguments: Mapping[str, Any]) -> tuple[int, tuple[int, ...]]:
    """The largest number of chains per observation, and the shape of an observation."""
    alphas, mixing = arguments["alphas"], arguments["mixing"]
    wanted, _ = check_alphas(alphas, arguments["sources"], mixing, None, len(priors))
    known: Any = alphas if wanted is None else [1.0 if a is None else a for a in wanted]
    known = (1.0, 1.0) if known is None else known
    everywhere = None if mixing is None else mixing.replace(mask=None)
    fitted = make_mixing(known, everywhere, None, arguments["noise"], priors[0].shape)
    each = priors * fitted.sources if len(priors) == 1 else priors
    method, estimate, samples = (arguments[n] for n in ("method", "estimate", "samples"))
    plan = make_plan(method, estimate, samples, each, fitted)
    return plan.widest, fitted.observed_shape(priors[0].shape)


def _priors(prior: Priors) -> tuple[str | Prior, ...]:
    several = [prior] if isinstance(prior, str | Path | Prior) else list(prior)
    if not several:
        raise BasisError("prior must be a prior, its name or folder, or a non-empty list of these")
    return tuple(p if isinstance(p, Prior) else str(p) for p in several)


def _checksums(given: Sequence[str | Prior], loaded: Sequence[Prior]) -> tuple[str, ...]:
    """The weights that workers must have; priors that are sent themselves need no check."""
    if not all(isinstance(p, str) for p in given):
        return ()
    return tuple(card_checksum(prior) for prior in loaded)


_ARRAYS = "[a-z]{1,32}"
_RESULTS = re.compile(rf"{_ARRAYS}\.npy|names\.txt|(store|job|run)\.json")
_TEMPORARY = re.compile(rf"\.{_ARRAYS}-\w+\.(npy|json|txt)")


@dataclass(frozen=True)
class _Job:
    """A task, its observations, and the folder of its results."""

    stream: ObservationStream
    task: Task
    priors: list[Prior]
    folder: Path
    shard: int | None

    def run(
        self,
        workers: int | None,
        scheduler: str | None,
        progress: bool | OnShard | None,
    ) -> JobStore:
        """Runs the job from where it was stopped; a finished one is only checked."""
        if workers is not None and scheduler is not None:
            raise BasisError("give workers (on this machine) or scheduler, not both")
        with folder_lock(self.folder), _reporter(progress) as report:
            _check_folder(self.folder)
            found = survey(self.stream)
            identity = identify(self.task.kind, found, self.priors, self.task.arguments)
            shards = self._open(identity)
            known = _finished(self.folder, shards)
            if known is not None:
                shards.remove()
                report(ShardProgress(len(known), len(known), 0))
                return known
            self._prepare(identity, shards)
            began, made, damaged = time.time(), None, 0
            while made is None:
                whole, found_damaged = shards.check()
                damaged += found_damaged
                if len(whole) < len(shards):
                    payloads = self._payloads(found, shards, whole)
                    results = run_workers(self.task, payloads, workers, scheduler)
                    self._write(results, shards, whole, report)
                about = {
                    "task": self.task.kind,
                    "settings": identity["settings"],
                    "value_range": [self.priors[0].low, self.priors[0].high],
                    "likely": LIKELY,
                }
                made = assemble(self.folder, shards, about, self.stream.names)
            _write_run(self.folder, shards, made, damaged, time.time() - began)
            self._write_panel(made)
            shards.remove()
            (self.folder / JOB).unlink(missing_ok=True)
            return made

    def _open(self, identity: dict[str, Any]) -> Shards:
        """The shards of a new job, or of the same job if the folder holds it."""
        mark, block = checksum(identity), self.task.block
        wanted = min(self.shard or SHARD, len(self.stream))
        size = max(block, -(-wanted // block) * block)
        for name in (JOB, STORE):
            path = self.folder / name
            if not path.is_file():
                continue
            try:
                other = read_json(path, "a job")
            except BasisError as error:
                raise BasisError(_damaged(path)) from error
            other = other if isinstance(other, dict) else {}
            if other.get("job") != mark:
                raise BasisError(
                    f"{self.folder} holds another job ({difference(other, identity)}); repeat the "
                    "command that started it, or give another out"
                )
            kept = other.get("shard", size)
            if type(kept) is not int or kept < 1 or kept % block:
                raise BasisError(_damaged(path))
            size = kept
        return Shards(self.folder / FOLDER, mark, len(self.stream), size)

    def _prepare(self, identity: dict[str, Any], shards: Shards) -> None:
        """Writes the job's record, and removes what a killed process was about to write."""
        path = self.folder / JOB
        if not path.exists():
            record = {**identity, "job": shards.job, "shard": shards.size}
            with resumable(path):
                write_text(path, json.dumps(record, indent=2, sort_keys=True) + "\n")
        for left in self.folder.iterdir():
            if _TEMPORARY.fullmatch(left.name):
                left.unlink()

    def _payloads(self, found: Survey, shards: Shards, whole: set[int]) -> Payloads:
        for index in range(len(shards)):
            if index in whole:
                continue
            start, stop = shards.bounds(index)
            piece = self.stream.checked(start, stop)
            yield (
                index,
                Payload(
                    piece.observation.numpy(),
                    found.occurrences[start:stop].tolist(),
                    {i - start: r for i, r in found.failures.items() if start <= i < stop},
                    None if piece.sources is None else piece.sources.numpy(),
                ),
            )

    def _write(
        self, results: Iterator[Any], shards: Shards, whole: set[int], report: OnShard
    ) -> None:
        """Writes each shard as it comes."""
        done = first = sum(stop - start for start, stop in map(shards.bounds, whole))
        report(ShardProgress(done, shards.count, 0))
        try:
            for index, made in results:
                shards.write(index, made)
                if done == first:
                    self._check_room(shards, len(shards) - len(whole) - 1, index)
                start, stop = shards.bounds(index)
                done += stop - start
                report(ShardProgress(done, shards.count, done - first))
        finally:
            results.close()  # type: ignore[attr-defined]

    def _write_panel(self, store: JobStore) -> None:
        """A picture of the first observations that could be used."""
        good = [i for i in range(min(len(store), 4 * _ROWS)) if i not in store.failures][:_ROWS]
        if not good or len(self.stream.shape) > 3:
            return
        pieces = [self.stream.checked(i, i + 1) for i in good]
        observations = torch.cat([piece.observation for piece in pieces])
        names = store.names or [f"{i + 1:0{len(str(len(store)))}d}" for i in range(len(store))]
        if self.task.kind == "colorize":
            colors = torch.from_numpy(store["colors"][good]).float().div(255)
            shown = torch.cat([observations.expand(-1, 3, -1, -1)[:, None], colors], dim=1)
            captions = ["grey", *(f"colors {i + 1}" for i in range(colors.shape[1]))]
            write_picture(self.folder / "panel.png", pictures_panel(shown, captions))
            return
        sources = torch.from_numpy(store["sources"][good])
        truth = [piece.sources for piece in pieces if piece.sources is not None]
        arguments = self.task.arguments
        if "alphas" in store.arrays:
            mixing: Mixing = PerItemMixing(torch.from_numpy(store["alphas"][good]))
        else:
            k, own = sources.shape[1], arguments["mixing"]
            alphas = None if own is not None else arguments["alphas"] or (1.0,) * k
            shape = tuple(sources.shape[2:])
            mixing = make_mixing(alphas, own, arguments["mask"], arguments["noise"], shape)
        picture = separation_panel(
            observations,
            sources,
            mixing,
            truth=torch.cat(truth) if truth else None,
            names=[printable(names[i]) for i in good],
            title=f"the first {len(good)} of {len(store)}",
            value_range=(self.priors[0].low, self.priors[0].high),
        )
        write_picture(self.folder / "panel.png", picture)

    def _check_room(self, shards: Shards, left: int, index: int) -> None:
        """Stops a job whose results the disk has no room for, by the size of its first shard."""
        need = shards.path(index).stat().st_size * (left + len(shards))  # shards, then the store
        free = shutil.disk_usage(self.folder).free
        if need > free:
            raise BasisError(
                f"{self.folder} has room for {free / 1e6:,.1f} MB, and this job writes about "
                f"{need / 1e6:,.1f} MB more; make room or give another out"
            )


@contextmanager
def _reporter(progress: bool | OnShard | None) -> Iterator[OnShard]:
    """The function to report to: the user's, a progress bar, or nothing."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda _: None
        return
    from tqdm import tqdm

    began = last = time.monotonic()
    with tqdm(desc="job", unit="item", leave=False, disable=None, **bar_size()) as bar:

        def update(p: ShardProgress) -> None:
            nonlocal began, last
            if not bar.total:
                bar.reset(p.total)
                bar.initial = bar.n = p.done - p.now
                began = time.monotonic()
                if 0 < p.done < p.total:
                    print(f"resumed at {p.done:,} of {p.total:,}", file=sys.stderr)
            bar.update(p.done - bar.n)
            now = time.monotonic()
            if bar.disable and p.now and now - last > _EVERY:
                last = now
                left = (now - began) / p.now * (p.total - p.done) / 60
                print(f"{p.done:,} of {p.total:,}, {left:.0f} min left", file=sys.stderr)

        yield update


def _damaged(path: Path) -> str:
    return f"{path} is damaged; give another out, or remove {path.parent} to start again"


def _check_folder(folder: Path) -> None:
    """Refuses a folder where a file of the job is a folder, a pipe or a device, or where its folder
    of shards is a symbolic link.
    """
    check_no_link(folder / FOLDER)
    for path in folder.iterdir():
        if _RESULTS.fullmatch(path.name) and path.exists() and not path.is_file():
            raise BasisError(f"{path} is not a regular file; remove it, or give another out")
        if path.name == FOLDER and not path.is_dir():
            raise BasisError(f"{path} is not a folder; remove it, or give another out")


def _finished(folder: Path, shards: Shards) -> JobStore | None:
    """The store of this job if it is whole; a damaged one is removed."""
    if not (folder / STORE).is_file():
        return None
    store = open_store(folder)
    same = store.about["job"] == shards.job and len(store) == shards.count
    if same and not store.damaged():
        return store
    (folder / STORE).unlink()
    print(f"basis: {folder} was damaged after it was finished; it is made again", file=sys.stderr)
    return None


def _write_run(folder: Path, shards: Shards, store: JobStore, damaged: int, seconds: float) -> None:
    """run.json: how the job went, which differs between runs."""
    record: dict[str, Any] = {
        "observations": shards.count,
        "failed": len(store.failures),
        "shards": len(shards),
        "observations_per_shard": shards.size,
        "shards_damaged": damaged,
        "seconds_of_last_run": round(seconds, 3),
    }
    earlier = RunFolder(folder, RUN).earlier()
    with resumable(folder / RUN):
        write_text(folder / RUN, json.dumps(record, indent=2) + "\n")
    remove_files(folder, {name for name in earlier if not _RESULTS.fullmatch(name)})
