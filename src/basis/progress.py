"""Progress: what callbacks receive, and a bar on the terminal or in a notebook."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

DELAY = 3.0
"""Seconds before a bar appears; shorter work shows none."""
LONG = 15.0
"""Work that takes more seconds is announced with its estimated time."""


@dataclass(frozen=True)
class Progress:
    """Passed to a progress callback after every step.

    Attributes:
        done, total: Steps done and steps in all, over all batches.
        sigma: The noise level.
        state: The chains of the batch that took the step, (batch, chains, k, channels, *size), with
            their noise; None if there is nothing to show. It belongs to the sampler: read it in the
            callback or copy it.
    """

    done: int
    total: int
    sigma: float
    state: Tensor | None = field(default=None, repr=False, compare=False)


Callback = Callable[[Progress], None]


@contextmanager
def progress_bar(
    progress: bool | Callback | None, label: str, task: str = ""
) -> Iterator[Callback | None]:
    """The callback to report to: a progress bar, the user's own function, or nothing.

    Args:
        progress: A function is used as it is; True shows a bar, False none; None shows one on a
            terminal or in a notebook.
        label: What the bar says.
        task: A description of the work. Unless progress is False or a function, long work is
            announced by it and the time that it will take, estimated from the first step.
    """
    if callable(progress):
        yield progress
        return
    shown = progress is True or (progress is None and _interactive())
    if progress is False or not (shown or task):
        yield None
        return
    started = time.monotonic()
    announced = not task

    def announce(p: Progress) -> None:
        nonlocal announced
        seconds = (time.monotonic() - started) / p.done * p.total
        if seconds > LONG:
            print(f"{task}, about {duration(seconds)}", file=sys.stderr)
        announced = True

    def update(p: Progress) -> None:
        if not announced:
            announce(p)
        if bar is not None:
            bar.total = p.total
            bar.update(p.done - bar.n)

    if not shown:
        bar = None
        yield update
        return
    from tqdm.auto import tqdm

    with tqdm(desc=label, unit="step", delay=DELAY, leave=False, **bar_size()) as bar:
        yield update


def with_bar(items: Sequence[T], label: str) -> Iterator[T]:
    """The items one by one, with a bar on a terminal or in a notebook if they take long."""
    with progress_bar(None, label) as report:
        for done, item in enumerate(items, start=1):
            yield item
            if report is not None:
                report(Progress(done, len(items), 0.0))


def bar_size() -> dict[str, Any]:
    """The size of a bar, for tqdm, which draws none on terminals that do not know their own."""
    if not sys.stderr.isatty():
        return {}
    columns, rows = shutil.get_terminal_size()
    return {"ncols": columns, "nrows": rows}


def duration(seconds: float) -> str:
    """Seconds in words: "40 s", "17 min" or "2.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _interactive() -> bool:
    return "ipykernel" in sys.modules or sys.stderr.isatty()
