"""Workers of a Dask cluster.

The process that runs the job reads the observations and writes the shards; workers compute and
share no disk with it. A shard whose worker is lost is sent to another one, and a scheduler that is
restarted is waited for.
"""

from __future__ import annotations

import contextlib
import queue
import time
from dataclasses import dataclass
from typing import Any

from basis.errors import BasisError, one_line
from basis.jobs.store import Made
from basis.jobs.work import Payload, Task, own_device, work
from basis.jobs.workers import TRIES, Payloads, Results, lost_error

PATIENCE = 600.0
"""Seconds to wait for a scheduler that went away."""
FIRST_PATIENCE = 20.0
"""Seconds to wait for the scheduler at the beginning."""
_POLL = 2.0


def run_on_dask(task: Task, payloads: Payloads, scheduler: str) -> Results:
    """The results of all shards from the workers of a scheduler.

    Args:
        task: What to do.
        payloads: The shards.
        scheduler: The scheduler's address. TLS and certificates are those of Dask's configuration.
    """
    with contextlib.closing(_Session(task, scheduler)) as session:
        yield from session.run(payloads)


@dataclass
class _UnderWay:
    payload: Payload
    tries: int
    future: Any


class _Session:
    """Shards under way on a cluster."""

    def __init__(self, task: Task, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise BasisError(
                "a scheduler needs Dask: pip install 'basis-separation[distributed]'"
            ) from error
        self.distributed, self.task, self.address = distributed, task, address
        self.under_way: dict[int, _UnderWay] = {}
        self.ended: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.client = self._connect(FIRST_PATIENCE)

    def close(self) -> None:
        for held in self.under_way.values():
            with contextlib.suppress(Exception):
                held.future.cancel()
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)

    def run(self, payloads: Payloads) -> Results:
        more = True
        while more or self.under_way:
            while more and len(self.under_way) < self._window():
                taken = next(payloads, None)
                more = taken is not None
                if taken is not None:
                    self._submit(*taken)
            try:
                index, future = self.ended.get(timeout=_POLL)
            except queue.Empty:
                self._check_connection()
                continue
            held = self.under_way.get(index)
            if held is None or held.future is not future:
                continue  # of a connection that was given up
            if future.status != "finished":
                self._failed(index, future)
                continue
            try:
                made = future.result(timeout=30)
            except Exception:  # the worker that held it is gone
                self._again(index)
                continue
            del self.under_way[index]
            future.release()
            yield index, made

    def _connect(self, patience: float) -> Any:
        deadline = time.monotonic() + patience
        while True:
            left = max(1.0, min(10.0, deadline - time.monotonic()))
            try:
                return self.distributed.Client(self.address, timeout=left, set_as_default=False)
            except ValueError as error:
                raise BasisError(
                    f"scheduler must be an address such as tcp://host:8786, not {self.address!r} "
                    f"({one_line(error)})"
                ) from error
            except (OSError, RuntimeError) as error:
                if time.monotonic() >= deadline:
                    raise BasisError(
                        f"no Dask scheduler answers at {self.address}; finished shards are kept: "
                        "the same command resumes the job"
                    ) from error
                time.sleep(1.0)

    def _window(self) -> int:
        """Shards to have under way: two for each thread, so that none waits for its next."""
        with contextlib.suppress(Exception):
            return max(2, 2 * sum(self.client.nthreads().values()))
        return 2

    def _submit(self, index: int, payload: Payload, tries: int = 0) -> None:
        self.under_way[index] = held = _UnderWay(payload, tries, None)
        # Where the connection has just broken, `_check_connection` submits it later.
        with contextlib.suppress(Exception):
            held.future = self.client.submit(_on_worker, self.task, payload, pure=False, retries=0)
            held.future.add_done_callback(lambda done: self.ended.put((index, done)))

    def _again(self, index: int) -> None:
        held = self.under_way.pop(index)
        if held.tries + 1 >= TRIES:
            raise lost_error(index)
        self._submit(index, held.payload, held.tries + 1)

    def _failed(self, index: int, future: Any) -> None:
        if future.status == "error":
            error = future.exception(timeout=30)
            if isinstance(error, BasisError):
                raise error
            if not isinstance(error, self.distributed.KilledWorker | OSError):
                raise BasisError(
                    f"a worker failed on shard {index}: {type(error).__name__}: {one_line(error)}; "
                    "does it have the same versions of all libraries?"
                ) from error
        elif self.client.status != "running":
            self._check_connection()
            return
        self._again(index)

    def _check_connection(self) -> None:
        """Waits for a scheduler that went away, and sends it all shards under way."""
        if self.client.status == "running" and all(
            held.future is not None and held.future.status != "cancelled"
            for held in self.under_way.values()
        ):
            return
        with contextlib.suppress(Exception):
            self.client.close(timeout=1)
        self.client = self._connect(PATIENCE)
        for index, held in list(self.under_way.items()):
            self._submit(index, held.payload, held.tries)


def _on_worker(task: Task, payload: Payload) -> Made:
    return work(task, payload, own_device(task.device))
