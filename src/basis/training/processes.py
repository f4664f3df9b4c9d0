"""Processes of a training run: their cooperation, their progress bar, and how they are stopped.

Several processes are started by torchrun. Each draws the same images and noise from the same
generator and computes its share of the batch; `DistributedDataParallel` averages the gradients, so
that all take the same step. Apart from rounding and dropout the run is that of one process, and its
state does not depend on their number.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm

from basis.errors import BasisError
from basis.files import folder_lock
from basis.progress import bar_size

Report = bool | Callable[[dict[str, Any]], None]
"""How a run reports: a progress bar, not at all, or by calling a function with rows of its log."""

_TIMEOUT = datetime.timedelta(days=1)
"""How long the others wait while the first one writes or trains the variance."""


class Processes:
    """The processes of a run: those that torchrun started, or this one alone.

    Attributes:
        rank: This one's number.
        count: How many there are.
        first: Whether this is the process that writes.
    """

    def __init__(self) -> None:
        self.rank, self.count = _ranks()
        self.first = self.rank == 0
        if self.count > 1 and not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo"
            dist.init_process_group(backend, timeout=_TIMEOUT)

    def device(self, device: torch.device) -> torch.device:
        """This process's own GPU if there are several processes on GPUs."""
        if device.type == "cuda" and device.index is None and self.count > 1:
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)))
        return device

    def share(self, batch: int) -> slice:
        """Which items of a batch this process computes."""
        return slice(batch * self.rank // self.count, batch * (self.rank + 1) // self.count)

    def mean(self, value: float) -> float:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(total)
        return total.item() / self.count

    def lock(self, folder: Path) -> AbstractContextManager[None]:
        """Keeps other runs out of a folder; the first process holds the lock for all."""
        return folder_lock(folder) if self.first else nullcontext()

    def wait(self) -> None:
        """Waits for all processes."""
        if self.count > 1:
            dist.barrier()


def _ranks() -> tuple[int, int]:
    """Rank and number of processes from torchrun's variables; 0 and 1 without them."""
    try:
        rank, count = (int(os.environ.get(n, d)) for n, d in (("RANK", "0"), ("WORLD_SIZE", "1")))
    except ValueError as error:
        raise BasisError("RANK and WORLD_SIZE must be whole numbers, as torchrun sets") from error
    # Other tools set WORLD_SIZE too; only torchrun also sets an address.
    return (rank, count) if "MASTER_ADDR" in os.environ and count > 1 else (0, 1)


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles SIGINT and SIGTERM within the block, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, previous in old.items():
            signal.signal(s, previous)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event, so that a step is never interrupted."""
    stop = threading.Event()
    with _signals(lambda number, frame: stop.set()):
        yield stop


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt as SIGINT does, with a line that says how
    to continue: everything that is written is written atomically, and the state before.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _signals(interrupt):
        try:
            yield
        except KeyboardInterrupt as error:
            where = f"{error}; " if str(error) else ""
            raise KeyboardInterrupt(
                f"stopped: {where}the state is saved in {folder}; run the same again to continue"
            ) from None


def progress_bar(label: str, total: float, done: float, unit: str, shown: bool) -> tqdm[Any]:
    """A progress bar with the time left; without a terminal it is printed every 30 seconds."""
    return tqdm(
        desc=label,
        total=round(total),
        initial=round(done),
        unit=unit,
        unit_scale=True,
        disable=not shown,
        mininterval=0.1 if sys.stderr.isatty() else 30.0,
        bar_format="{l_bar}{bar}| {elapsed}<{remaining}{postfix}" if unit == "s" else None,
        **bar_size(),
    )
