"""Shards on the workers of a Dask cluster that somebody else started.

The process that runs the job reads the mixtures and writes the shards; workers compute, and share
no disk with it. What a worker does depends on nothing but the shard, so that one that is lost costs
its shard's time: the shard is given to another.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from basis.errors import BasisError
from basis.jobs.engines import TRIES, Tasks
from basis.jobs.recipe import Made, Payload, Recipe, own_device, work

PATIENCE = 600.0
"""Seconds to wait for a scheduler that went away."""
FIRST_PATIENCE = 20.0
"""The same where it has not been there yet."""
_POLL = 2.0


class DaskEngine:
    """Shards on Dask workers.

    Args:
        scheduler: The address of a scheduler.
        patience: Seconds to wait for a scheduler that went away.
    """

    def __init__(self, scheduler: str, patience: float = PATIENCE) -> None:
        self.scheduler, self.patience = scheduler, patience
        self.distributed = _import_distributed()

    def run(self, recipe: Recipe, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        """Every shard by its index as it is done, in any order."""
        with contextlib.closing(_Session(self, self.scheduler)) as session:
            yield from session.run(recipe, tasks)

    def connect(self, address: str, patience: float) -> Any:
        """A client of the scheduler, which is waited for."""
        deadline = time.monotonic() + patience
        while True:
            left = deadline - time.monotonic()
            try:
                return self.distributed.Client(
                    address, timeout=max(1.0, min(10.0, left)), set_as_default=False
                )
            except ValueError as error:
                raise BasisError(
                    f"{address!r} is no address of a scheduler ({_first_line(error)}); "
                    "tcp://host:8786 is one"
                ) from error
            except (OSError, RuntimeError) as error:
                if time.monotonic() >= deadline:
                    raise BasisError(
                        f"no Dask scheduler answers at {address}; what was done is kept, and the "
                        "same command goes on"
                    ) from error
                time.sleep(1.0)


@dataclass
class _UnderWay:
    payload: Payload
    tries: int
    future: Any


class _Session:
    """Shards under way on a cluster, over as many connections as it takes."""

    def __init__(self, engine: DaskEngine, address: str) -> None:
        self.engine, self.address = engine, address
        self.client: Any = engine.connect(address, FIRST_PATIENCE)
        self.under_way: dict[int, _UnderWay] = {}
        self.ended: queue.Queue[tuple[int, Any]] = queue.Queue()

    def close(self) -> None:
        for held in self.under_way.values():
            with contextlib.suppress(Exception):
                held.future.cancel()
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)

    def run(self, recipe: Recipe, tasks: Tasks) -> Iterator[tuple[int, Made]]:
        more = True
        while more or self.under_way:
            while more and len(self.under_way) < self._window():
                taken = next(tasks, None)
                more = taken is not None
                if taken is not None:
                    self._submit(recipe, *taken)
            try:
                index, future = self.ended.get(timeout=_POLL)
            except queue.Empty:
                self._check_connection(recipe)
                continue
            held = self.under_way.get(index)
            if held is None or held.future is not future:
                continue  # of a connection that was given up
            if future.status == "finished":
                try:
                    made = future.result(timeout=30)
                except Exception:  # the worker that held it is gone
                    self._again(recipe, index)
                    continue
                del self.under_way[index]
                future.release()
                yield index, made
            else:
                self._failed(recipe, index, future)

    def _window(self) -> int:
        """Shards to have under way: two for each thread, so that none waits for its next."""
        with contextlib.suppress(Exception):
            return max(2, 2 * sum(self.client.nthreads().values()))
        return 2

    def _submit(self, recipe: Recipe, index: int, payload: Payload, tries: int = 0) -> None:
        try:
            future = self.client.submit(_on_worker, recipe, payload, pure=False, retries=0)
        except Exception:  # the connection broke just now; `_check_connection` mends it
            self.under_way[index] = _UnderWay(payload, tries, None)
            return
        self.under_way[index] = _UnderWay(payload, tries, future)
        future.add_done_callback(lambda done: self.ended.put((index, done)))

    def _again(self, recipe: Recipe, index: int) -> None:
        held = self.under_way.pop(index)
        if held.tries + 1 >= TRIES:
            raise BasisError(
                f"shard {index} was given to workers {TRIES} times and each was lost with it; have "
                "they enough memory? what was done is kept, and the same command goes on"
            )
        self._submit(recipe, index, held.payload, held.tries + 1)

    def _failed(self, recipe: Recipe, index: int, future: Any) -> None:
        if future.status == "error":
            error = future.exception(timeout=30)
            if isinstance(error, BasisError):
                raise error
            lost = getattr(self.engine.distributed, "KilledWorker", None)
            if not (lost and isinstance(error, lost)) and not isinstance(error, OSError):
                raise BasisError(
                    f"a worker failed on shard {index}: {type(error).__name__}: "
                    f"{_first_line(error)}; has it the same versions of everything?"
                ) from error
        elif self.client.status != "running":
            self._check_connection(recipe)
            return
        self._again(recipe, index)

    def _check_connection(self, recipe: Recipe) -> None:
        """Waits for a scheduler that went away, and gives everything under way to the new one."""
        if self.client.status == "running" and all(
            held.future is not None and held.future.status != "cancelled"
            for held in self.under_way.values()
        ):
            return
        with contextlib.suppress(Exception):
            self.client.close(timeout=1)
        self.client = self.engine.connect(self.address, self.engine.patience)
        for index, held in list(self.under_way.items()):
            self._submit(recipe, index, held.payload, held.tries)


def _on_worker(recipe: Recipe, payload: Payload) -> Made:
    """Makes a shard where this runs."""
    return work(recipe, payload, own_device(recipe.device))


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise BasisError(
            "the workers of a scheduler need Dask: pip install 'basis-separation[distributed]'"
        ) from error
    return distributed


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
