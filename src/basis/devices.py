"""Devices and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from basis.errors import BasisError, one_line


def find_device(device: torch.device | str) -> torch.device:
    """A torch device that exists here; "auto" is a CUDA device where there is one, else the CPU."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()  # which a device without memory of its own cannot do
    except Exception as error:
        line = one_line(error)
        raise BasisError(
            f"device {str(device)!r} cannot be used here: {line}; auto, cpu, or cuda where there "
            "is a GPU are accepted"
        ) from error
    return found


T = TypeVar("T")
R = TypeVar("R")


class Stopped(Exception):
    """Raised inside a worker whose caller has gone."""


def default_workers(device: torch.device) -> int:
    """As many as torch would use threads, on a CPU; one elsewhere."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def run_all(
    work: Callable[[int, T, Callable[[], None]], R], pieces: Sequence[T], workers: int
) -> list[R]:
    """work(number, piece, check) for every piece, in order of pieces.

    A worker calls `check` now and then: it raises when another piece has failed or the caller was
    interrupted, so that nothing goes on behind an error.
    """
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def one(job: tuple[int, T]) -> R:
        try:
            with torch.inference_mode():
                return work(*job, check)
        except BaseException:
            stop.set()
            raise

    jobs = list(enumerate(pieces))
    if workers <= 1 or len(jobs) == 1:
        return [one(job) for job in jobs]
    with threads(1), ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(one, job) for job in jobs]
        try:
            results = [future.result() for future in futures]
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            # The first real error, not the echo of it in the pieces that it stopped.
            for future in futures:
                error = None if future.cancelled() else future.exception()
                if error is not None and not isinstance(error, Stopped):
                    raise error from None
            raise
    return results


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's own threads per operation for the length of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
