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
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()  # fails for devices without data, such as "meta"
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
    """Raised in a worker to stop it."""


def default_workers(device: torch.device) -> int:
    """The number of torch's threads on a CPU, 1 on other devices."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def run_all(
    work: Callable[[int, T, Callable[[], None]], R], pieces: Sequence[T], workers: int
) -> list[R]:
    """The results of work(number, piece, check) for every piece, in the order of the pieces.

    Workers call `check` regularly: it raises if another piece has failed or the caller was
    interrupted, so that no work continues after an error.
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
            # The first error, not the Stopped of the other pieces.
            for future in futures:
                error = None if future.cancelled() else future.exception()
                if error is not None and not isinstance(error, Stopped):
                    raise error from None
            raise
    return results


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Sets the number of torch's threads per operation for the duration of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
