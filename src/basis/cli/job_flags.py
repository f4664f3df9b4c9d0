"""Flags of commands that work on thousands of items: as a job of shards."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import natural, say, thread_count, warn
from basis.errors import BasisError
from basis.files import check_no_link

if TYPE_CHECKING:
    from torch import Tensor

    from basis.jobs.job import ShardProgress
    from basis.jobs.store import JobStore


MANY = 1000
"""More items than this are a job without being asked."""
_PICTURES = "pictures"  # the folder of single pictures in a job's folder
_EVERY = 30.0  # seconds between lines where there is no terminal


def add_job_flags(parser: argparse.ArgumentParser, *, samples: bool = True) -> None:
    """How a job is run.

    Args:
        samples: Whether there are samples that may be kept.
    """
    group = parser.add_argument_group(
        "jobs",
        f"More than {MANY} items, or a folder, are a job: worked on in shards and written as "
        "arrays on disk; stopped in any way, the same command goes on.",
    )
    group.add_argument("--job", action="store_true", help="run fewer items as a job too")
    group.add_argument("--shard", type=natural, metavar="N", help="items in a shard (64)")
    group.add_argument(
        "--workers", type=thread_count, metavar="N", help="worker processes on this machine"
    )
    group.add_argument(
        "--scheduler", metavar="ADDRESS", help="use the workers of this Dask scheduler"
    )
    group.add_argument(
        "--worker-device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where workers compute (auto: their own GPU where they have one)",
    )
    group.add_argument(
        "--pictures", action="store_true", help="write every result as a picture too"
    )
    if samples:
        group.add_argument(
            "--keep-samples", action="store_true", help="keep all samples, not only the chosen one"
        )


def wants_job(args: argparse.Namespace, inputs: list[str], count: int) -> bool:
    """Whether a job is asked for, by flags or by numbers.

    Args:
        args: The flags.
        inputs: Files, folders, or the name of a data set.
        count: How many items are taken of a data set.
    """
    asked = args.job or args.workers or args.scheduler or args.shard or args.pictures
    return bool(asked or getattr(args, "keep_samples", False)) or _item_count(inputs, count) > MANY


def job_device(args: argparse.Namespace) -> str:
    """Where a job computes: what --device says here, what --worker-device says on workers."""
    chosen: str = args.worker_device if args.workers or args.scheduler else args.device
    return chosen


def folder_pictures(paths: list[str], out: str) -> list[Path]:
    """The pictures that files and folders hold, in order; what is in `out` was made of others."""
    from basis.signals.pictures import find_pictures

    found: list[Path] = []
    for path in map(Path, paths):
        inside = [path]
        if path.is_dir():
            own = Path(out).resolve()
            inside = [p for p in find_pictures(path) if own not in p.resolve().parents]
            say(f"{len(inside)} picture{'s' if len(inside) != 1 else ''} in {path} and below")
        if not inside:
            raise BasisError(f"{path} holds no pictures")
        found += inside
    return found


@contextmanager
def shard_progress(label: str) -> Iterator[Callable[[ShardProgress], None]]:
    """A bar with time left, or a line now and then where there is no terminal."""
    from tqdm import tqdm

    began = told = time.monotonic()
    with tqdm(desc=label, unit="item", leave=False, dynamic_ncols=True, disable=None) as bar:

        def update(progress: ShardProgress) -> None:
            nonlocal began, told
            if not bar.total:
                bar.reset(progress.total)
                bar.initial = progress.done - progress.now
                bar.n = bar.initial
                began = time.monotonic()
                if 0 < progress.done < progress.total:
                    print(f"going on from {progress.done:,} of {progress.total:,}", file=sys.stderr)
            bar.update(progress.done - bar.n)
            now = time.monotonic()
            if bar.disable and progress.now and now - told > _EVERY:
                told = now
                left = (now - began) / progress.now * (progress.total - progress.done) / 60
                print(
                    f"{progress.done:,} of {progress.total:,}, {left:.0f} min left", file=sys.stderr
                )

        yield update


def run_job_command(
    args: argparse.Namespace, label: str, inputs: str, job: Callable[..., JobStore]
) -> JobStore:
    """Runs a job behind a progress bar, with what the flags say about every job.

    Args:
        args: The flags.
        label: What the bar says.
        inputs: The argument that names the items.
        job: Starts it, given how it is cut, where it computes and what run.json says.
    """
    if args.pictures:
        check_no_link(Path(args.out) / _PICTURES)
    with shard_progress(label) as progress:
        return job(
            shard=args.shard,
            workers=args.workers,
            scheduler=args.scheduler,
            device=job_device(args),
            seed=args.seed,
            progress=progress,
        )


def first_good(store: JobStore, count: int) -> list[int]:
    """The first items that could be used, for a panel; not many are looked through."""
    return [i for i in range(min(len(store), 4 * count)) if i not in store.failures][:count]


def item_name(store: JobStore, index: int, names: list[str] | None) -> str:
    """What an item is called: its name, or its number."""
    return names[index] if names else f"{index + 1:0{len(str(len(store)))}d}"


def write_pictures(
    store: JobStore, array: str, kind: str, out: Path, picture: Callable[[Tensor], Any]
) -> None:
    """Every result as pictures in a folder `pictures`.

    Args:
        store: The results.
        array: Which of its arrays, (n, pictures of an item, channels, height, width).
        kind: What the files are called after, as in "source".
        out: The folder of the job.
        picture: Makes a picture of one (channels, height, width).
    """
    import torch

    from basis.plots.drawing import write_picture

    check_no_link(out / _PICTURES)
    values, names = store[array], store.names
    for index in range(len(store)):
        if index not in store.failures:
            name = item_name(store, index, names)
            for i, image in enumerate(torch.from_numpy(values[index].copy())):
                write_picture(out / _PICTURES / f"{name}-{kind}{i + 1}.png", picture(image))


def print_end(command: str, store: JobStore) -> None:
    """Tells which items could not be used, and where the results are."""
    _print_failures(command, store)
    say(f"store: {store.folder}  picture: {store.folder / 'panel.png'}")


def _print_failures(command: str, store: JobStore) -> None:
    failures = store.failures
    if failures:
        first, reason = next(iter(sorted(failures.items())))
        name = store.names[first] if store.names else f"number {first + 1}"
        warn(
            f"basis {command}: warning: {len(failures)} of {len(store)} could not be used "
            f"(listed in {store.folder / 'store.json'}); the first is {name}: {reason}"
        )


def _item_count(inputs: list[str], count: int) -> int:
    """How many mixtures the inputs are, as far as that can be told without reading them."""
    from basis.signals.datasets import NAMES

    if len(inputs) != 1:
        return len(inputs)
    if inputs[0] in NAMES:
        return count
    path = Path(inputs[0])
    if path.is_dir():
        return MANY + 1
    if path.suffix.lower() == ".npy" and path.is_file():
        import numpy as np

        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # whoever reads it says what is wrong
            return 1
        return len(array) if array.ndim > 3 else 1
    return 1
