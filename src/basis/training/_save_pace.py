"""When a run saves its state, and how it is stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

_LEAST = 1.0  # seconds between saves, however quick they are


class SavePace:
    """Saves as often as a share of the time allows: what a kill costs is what that share is worth.

    Args:
        share: The share of the time that saving may take, in (0, 1).

    A save is the block of a `with` statement, and is timed.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.wait = _LEAST
        self.began = self.ended = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self.ended >= self.wait

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = time.monotonic()
        self.wait = max(_LEAST, (self.ended - self.began) * (1 / self.share - 1))


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event, so that a step is never cut in half."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handler(number: int, frame: FrameType | None) -> None:
        stop.set()

    old = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, previous in old.items():
            signal.signal(s, previous)
