"""Who works on the shards of a job: threads of this process.

An engine takes shards as they are asked for and gives back what became of them in any order; only
a few are under way at a time, so that memory does not grow with the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from basis.jobs._recipe import Made, Payload, Recipe, own_device, work
from basis.separation import threads

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
