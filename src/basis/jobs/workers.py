"""Workers of a job: threads of this process, or processes of this machine.

Each function takes shards as they are asked for and yields their results in any order. Only a few
shards are under way at a time, so that memory does not grow with the job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any

import torch

from basis.devices import default_workers, threads
from basis.errors import BasisError, one_line
from basis.jobs.store import Made
from basis.jobs.work import Payload, Task, own_device, work

Payloads = Iterator[tuple[int, Payload]]
"""Shards to be made, by index; each is read when it is taken."""
Results = Iterator[tuple[int, Made]]
"""Shards by index, as they are finished."""

TRIES = 5
"""How often a shard is sent to workers that end without an answer before the job fails."""


def lost_error(index: int) -> BasisError:
    """The error of a shard whose workers ended `TRIES` times."""
    return BasisError(
        f"shard {index} was given to workers {TRIES} times and each of them ended; is there enough "
        "memory, and `if __name__ == '__main__':` around the script that starts them? Finished "
        "shards are kept: the same command resumes the job"
    )


class _Stopped(Exception):
    """Raised inside a thread whose job has ended."""


def run_workers(
    task: Task, payloads: Payloads, workers: int | None, scheduler: str | None
) -> Results:
    """The results of all shards, from the workers that the arguments name.

    Args:
        task: What to do.
        payloads: The shards.
        workers: Processes on this machine. 1 for a thread of this process; None for as many
            threads as torch has, or one process for each of several GPUs.
        scheduler: The address of a Dask scheduler.
    """
    gpus = torch.cuda.device_count() if task.device in ("cuda", "auto") else 0
    if scheduler is not None:
        from basis.jobs.dask_workers import run_on_dask

        return run_on_dask(task, payloads, scheduler)
    if (workers or 1) > 1 or (workers is None and gpus > 1):
        return run_processes(task, payloads, gpus if workers is None else workers)
    count = workers or default_workers(torch.device(own_device(task.device)))
    return run_threads(task, payloads, count)


def run_threads(task: Task, payloads: Payloads, count: int) -> Results:
    """The results of all shards from `count` threads."""
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise _Stopped

    def one(payload: Payload) -> Made:
        return work(task, payload, own_device(task.device), check)

    with threads(1), ThreadPoolExecutor(count) as pool:
        under_way: dict[Future[Made], int] = {}
        try:
            for index, payload in payloads:
                under_way[pool.submit(one, payload)] = index
                if len(under_way) == count:
                    yield from _finished(under_way)
            while under_way:
                yield from _finished(under_way)
        finally:
            stop.set()


def _finished(under_way: dict[Future[Made], int]) -> Results:
    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
        yield under_way.pop(future), future.result()


def run_processes(task: Task, payloads: Payloads, count: int) -> Results:
    """The results of all shards from `count` processes with one thread each.

    A process that is killed costs the time of the shards under way, which are sent again.
    """
    sent = _pickled(task)
    context = multiprocessing.get_context("spawn")
    held: dict[int, Payload] = {}
    tries: Counter[int] = Counter()

    def start() -> ProcessPoolExecutor:
        numbers = context.Value("i", 0)
        return ProcessPoolExecutor(count, context, _prepare, (sent, numbers))

    pool, under_way, again = start(), dict[Future[Made], int](), list[int]()
    try:
        while True:
            while len(under_way) < count:
                if not again:
                    taken = next(payloads, None)
                    if taken is None:
                        break
                    held[taken[0]] = taken[1]
                    again.append(taken[0])
                index = again.pop()
                with _without_interrupts():
                    try:
                        under_way[pool.submit(_work_here, held[index])] = index
                    except BrokenProcessPool:
                        again.append(index)
                        pool = start()
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                index = under_way.pop(future)
                try:
                    made = future.result()
                except BrokenProcessPool as error:
                    tries[index] += 1
                    if tries[index] == TRIES:
                        raise lost_error(index) from error
                    again.append(index)
                    continue
                except BasisError:
                    raise
                except Exception as error:
                    raise BasisError(
                        f"a worker failed on shard {index}: {one_line(error)}"
                    ) from error
                del held[index]
                yield index, made
    finally:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join(5)


_HERE: tuple[Task, str] | None = None
"""The task of a worker process, and its device."""


def _prepare(task: bytes, numbers: Any) -> None:
    """Begins a worker process."""
    global _HERE
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with numbers.get_lock():
        number, numbers.value = numbers.value, numbers.value + 1
    made: Task = pickle.loads(task)
    _HERE = made, own_device(made.device, number)


def _work_here(payload: Payload) -> Made:
    assert _HERE is not None
    task, device = _HERE
    return work(task, payload, device)


def _end_with_parent() -> None:
    """Ends this process as soon as the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _pickled(task: Task) -> bytes:
    """A task as bytes; with cloudpickle (part of Dask) its priors may use a script's functions."""
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        found: bytes = pickler.dumps(task)
    except Exception as error:  # pickling calls code of whatever is pickled
        raise BasisError(
            f"these priors cannot be sent to worker processes ({one_line(error)}); leave out "
            "workers, or give priors by name or folder"
        ) from error
    return found


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started within the block ignore Ctrl-C; the process that started them ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
