"""Progress: what callbacks receive, and a bar on the terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

DELAY = 3.0
"""Seconds before a bar appears; shorter work shows none."""


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
def progress_bar(progress: bool | Callback | None, label: str) -> Iterator[Callback | None]:
    """The callback to report to: a progress bar, the user's own function, or nothing.

    Args:
        progress: A function is used as it is; True shows a bar, False none; None shows one on a
            terminal or in a notebook.
        label: What the bar says.
    """
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not _interactive()):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=label, unit="step", delay=DELAY, leave=False) as bar:

        def update(p: Progress) -> None:
            bar.total = p.total
            bar.update(p.done - bar.n)

        yield update


def _interactive() -> bool:
    return "ipykernel" in sys.modules or sys.stderr.isatty()
