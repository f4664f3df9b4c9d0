"""Commands on many files: as jobs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.jobs.job import ShardProgress
    from basis.jobs.store import JobStore

MANY = 1000
"""More items than this are a job without being asked."""
_EVERY = 30.0  # seconds between lines if there is no terminal


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How a job runs."""
    group = parser.add_argument_group(
        f"jobs (a folder, or more than {MANY} items: shards on the disk; the same command resumes)"
    )
    group.add_argument("--job", action="store_true", help="run fewer items as a job too")
    group.add_argument("--shard", type=flags.natural, metavar="N", help="items in a shard (64)")
    group.add_argument("--scheduler", metavar="ADDRESS", help="use the workers of a Dask scheduler")
    group.add_argument("--pictures", action="store_true", help="write all results as pictures too")


def is_job(args: argparse.Namespace, inputs: list[str], count: int) -> bool:
    """Whether a job is asked for, or the items are many.

    Args:
        args: The flags.
        inputs: Files, folders, or the name of a data set.
        count: The number of items that are taken of a data set.
    """
    asked = args.job or args.scheduler or args.shard or args.pictures
    return bool(asked) or _item_count(inputs, count) > MANY


def _item_count(inputs: list[str], count: int) -> int:
    """How many items the inputs are, as far as that is known without reading them."""
    from basis.signals.datasets import DATASETS

    if any(Path(path).is_dir() for path in inputs):
        return MANY + 1
    if len(inputs) != 1 or inputs[0] in DATASETS:
        return count if len(inputs) == 1 else len(inputs)
    path = Path(inputs[0])
    if path.suffix.lower() == ".npy" and path.is_file():
        import numpy as np

        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # reading it later says what is wrong
            return 1
        return len(array) if array.ndim > 3 else 1
    return 1


def run_job(
    args: argparse.Namespace, job: Callable[..., JobStore], *given: Any, **more: Any
) -> None:
    """Runs a job with a progress bar, then prints what it did.

    Args:
        args: The flags.
        job: `separate_job` or `colorize_job`.
        given, more: Its arguments, without those of `add_jobs`.
    """
    with _progress_bar("jobs") as progress:
        store = job(
            *given,
            **more,
            workers=args.workers,
            scheduler=args.scheduler,
            shard=args.shard,
            progress=progress,
        )
    if args.pictures:
        store.write_pictures()
    print(store)


@contextmanager
def _progress_bar(label: str) -> Iterator[Callable[[ShardProgress], None]]:
    """A bar with time left, or a line now and then if there is no terminal."""
    from tqdm import tqdm

    began = last = time.monotonic()
    with tqdm(desc=label, unit="item", leave=False, dynamic_ncols=True, disable=None) as bar:

        def update(progress: ShardProgress) -> None:
            nonlocal began, last
            if not bar.total:
                bar.reset(progress.total)
                bar.initial = bar.n = progress.done - progress.now
                began = time.monotonic()
                if 0 < progress.done < progress.total:
                    print(f"resumed at {progress.done:,} of {progress.total:,}", file=sys.stderr)
            bar.update(progress.done - bar.n)
            now = time.monotonic()
            if bar.disable and progress.now and now - last > _EVERY:
                last = now
                left = (now - began) / progress.now * (progress.total - progress.done) / 60
                print(
                    f"{progress.done:,} of {progress.total:,}, {left:.0f} min left", file=sys.stderr
                )

        yield update
