"""The line of waiting visitors: so many separations at a time, the others in order of arrival."""

from __future__ import annotations

import threading
import time

from basis.errors import BasisError


class Line:
    """Hands out turns, first come first served.

    Places are asked for by polling, so that a visitor who went away while waiting loses the place
    and nobody behind is held up.

    Args:
        runs: Turns at the same time.
        waiting: The most tickets that may wait.
        idle: Seconds without a question for its place after which a waiting ticket is dropped.
    """

    def __init__(self, runs: int = 1, waiting: int = 12, idle: float = 15.0) -> None:
        if runs < 1 or waiting < 0:
            raise BasisError("a line needs at least one run at a time, and no negative waiting")
        self.runs, self.waiting, self.idle = runs, waiting, idle
        self._lock = threading.Lock()
        self._running: set[Ticket] = set()
        self._waiting: list[Ticket] = []

    def enter(self) -> Ticket:
        """A ticket at the end of the line; a full line is refused."""
        with self._lock:
            self._drop_stale()
            free = self.runs - len(self._running)
            if len(self._waiting) >= self.waiting + free:
                raise BasisError(
                    f"{len(self._waiting)} visitors are waiting already, which is as many as this "
                    "machine takes: please try again in a minute"
                )
            ticket = Ticket(self)
            self._waiting.append(ticket)
            return ticket

    def place(self, ticket: Ticket) -> int:
        """0 when it is the ticket's turn (which it then has until it leaves), else its place."""
        with self._lock:
            if ticket in self._running:
                return 0
            ticket.seen = time.monotonic()
            self._drop_stale()
            if ticket not in self._waiting:  # it was dropped, and is back
                self._waiting.append(ticket)
            ahead = self._waiting.index(ticket)
            if ahead < self.runs - len(self._running):
                self._waiting.remove(ticket)
                self._running.add(ticket)
                return 0
            return ahead + 1

    def leave(self, ticket: Ticket) -> None:
        """Gives up the turn or the place; twice is no harm."""
        with self._lock:
            self._running.discard(ticket)
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def counts(self) -> tuple[int, int]:
        """How many are running and how many waiting."""
        with self._lock:
            self._drop_stale()
            return len(self._running), len(self._waiting)

    def _drop_stale(self) -> None:
        now = time.monotonic()
        self._waiting = [t for t in self._waiting if now - t.seen < self.idle]


class Ticket:
    """A place in a line, and then a turn."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.seen = time.monotonic()

    def place(self) -> int:
        """0 when it is this ticket's turn, else its place in line, from 1."""
        return self.line.place(self)

    def leave(self) -> None:
        """Gives up the turn or the place."""
        self.line.leave(self)
