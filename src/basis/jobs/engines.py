"""Who works on the shards of a job: threads of this process.

An engine takes shards as they are asked for and gives back what became of them in any order; only
a few are under way at a time, so that memory does not grow with the job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_pipes
from typing import Any, Protocol

from basis.devices import threads
from basis.errors import BasisError
from basis.jobs.recipe import Made, Payload, Recipe, own_device, work

Tasks = Iterator[tuple[int, Payload]]
"""Shards to be made, by index, each read when it is taken."""


class Engine(Protocol):
    """Works on shards."""

    def run(self, recipe: Recipe, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        """Every shard by its index as it is done, in any order."""
        ...


class _GivenUp(Exception):
    """Raised inside a thread whose job has ended."""


class ThreadEngine:
    """Shards on threads of this process, each on one core.

    Args:
        count: Threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, recipe: Recipe, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        stop = threading.Event()

        def check() -> None:
            if stop.is_set():
                raise _GivenUp

        def one(payload: Payload) -> Made:
            return work(recipe, payload, own_device(recipe.device), check)

        yield from _windowed(one, tasks, self.count, stop)


def _windowed(
    one: Callable[[Payload], Made], tasks: Tasks, count: int, stop: threading.Event
) -> Iterator[tuple[int, Made]]:
    """Keeps `count` tasks under way, and ends them all where the caller ends."""
    with threads(1), ThreadPoolExecutor(count) as pool:
        under_way: dict[Future[Made], int] = {}
        try:
            for index, payload in tasks:
                under_way[pool.submit(one, payload)] = index
                if len(under_way) < count:
                    continue
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future.result()
            while under_way:
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield under_way.pop(future), future.result()
        finally:
            stop.set()


TRIES = 10
"""How often a shard is given to a worker before it is taken to be what kills them."""
_STARTS = 3
"""How many workers in a row may end before they are ready."""


class ProcessEngine:
    """Shards on processes of this machine, one thread each.

    Args:
        count: Processes.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, recipe: Recipe, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        """Every shard by its index as it is done, in any order."""
        with contextlib.closing(_Workers(recipe, self.count)) as workers:
            yield from workers.run(tasks)


@dataclass
class _Task:
    index: int
    payload: Payload
    tries: int = 0


@dataclass
class _Worker:
    number: int
    process: Any
    pipe: Connection
    ready: bool = False
    task: _Task | None = None


class _Workers:
    """Worker processes, each with at most one shard."""

    def __init__(self, recipe: Recipe, count: int) -> None:
        self.recipe = _dumped(recipe)
        self.count = count
        self.failed_starts = 0
        self.workers: dict[Any, _Worker] = {}
        self.again: list[_Task] = []

    def run(self, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        for number in range(self.count):
            self._start(number)
        more = True
        while True:
            for worker in list(self.workers.values()):
                if worker.ready and worker.task is None:
                    task = self.again.pop() if self.again else None
                    if task is None and more:
                        taken = next(tasks, None)
                        more = taken is not None
                        task = None if taken is None else _Task(*taken)
                    if task is not None:
                        self._give(worker, task)
            under_way = any(worker.task is not None for worker in self.workers.values())
            if not (more or self.again or under_way):
                return
            for pipe in wait_for_pipes(list(self.workers)):
                worker = self.workers[pipe]
                try:
                    kind, value = pickle.loads(worker.pipe.recv_bytes())
                except (EOFError, OSError):
                    self._lost(worker)
                    continue
                if kind == "ready":
                    worker.ready, self.failed_starts = True, 0
                    continue
                task, worker.task = worker.task, None
                assert task is not None
                if kind == "refused":
                    raise BasisError(value)
                if kind == "failed":
                    raise BasisError(f"a worker failed on shard {task.index}: {value}")
                yield task.index, value

    def close(self) -> None:
        """Ends all workers."""
        for worker in self.workers.values():
            worker.process.terminate()
        for worker in self.workers.values():
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(5)
            worker.pipe.close()
        self.workers.clear()

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, self.recipe, number), daemon=True, name=f"worker-{number}"
        )
        with _without_interrupts():
            process.start()
        theirs.close()  # so that its end is told by the end of the pipe
        self.workers[ours] = _Worker(number, process, ours)

    def _give(self, worker: _Worker, task: _Task) -> None:
        worker.task = task
        # One that has just ended is found by the end of its pipe.
        with contextlib.suppress(OSError):
            worker.pipe.send_bytes(pickle.dumps(task.payload))

    def _lost(self, worker: _Worker) -> None:
        """Starts another worker in place of one that ended, and keeps its shard for the next."""
        del self.workers[worker.pipe]
        worker.pipe.close()
        worker.process.join(5)
        if not worker.ready:
            self.failed_starts += 1
            if self.failed_starts >= _STARTS:
                raise BasisError(
                    "worker processes end before they are ready; is there enough memory? a script "
                    "that starts them needs `if __name__ == '__main__':` around what it does"
                )
        if worker.task is not None:
            worker.task.tries += 1
            if worker.task.tries >= TRIES:
                raise BasisError(
                    f"shard {worker.task.index} was given to workers {TRIES} times and each was "
                    "lost with it; have they enough memory? what was done is kept, and the same "
                    "command goes on"
                )
            self.again.append(worker.task)
        self._start(worker.number)


def _serve(pipe: Connection, recipe: bytes, number: int) -> None:
    """What a worker process does: shards as they come, until the pipe ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    made: Recipe = pickle.loads(recipe)
    device = own_device(made.device, number)
    with contextlib.suppress(EOFError, OSError):
        pipe.send_bytes(pickle.dumps(("ready", None)))
        while True:
            payload: Payload = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(pickle.dumps(_answer(made, payload, device)))


def _answer(recipe: Recipe, payload: Payload, device: str) -> tuple[str, Any]:
    try:
        return "made", work(recipe, payload, device)
    except BasisError as error:
        return "refused", str(error)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return "failed", f"{type(error).__name__}: {first}"


def _end_with_parent() -> None:
    """Ends this process, whatever it is at, when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_pipes([parent.sentinel])
        os._exit(1)


def _dumped(recipe: Recipe) -> bytes:
    """A recipe as bytes; its priors may have functions of the calling script where cloudpickle is
    installed, as it is with Dask.
    """
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        found: bytes = pickler.dumps(recipe)
    except Exception as error:  # pickling calls code of whatever is pickled
        first = (str(error).splitlines() or [""])[0]
        raise BasisError(
            f"these priors cannot be sent to worker processes ({type(error).__name__}: {first}); "
            "leave out workers, or give priors by name or folder"
        ) from error
    return found


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started within the block do not get Ctrl-C, which is for the one that ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
