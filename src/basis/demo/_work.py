"""What the tabs share: the line and the limits, and the end of a run."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from basis.demo._desk import Desk
from basis.demo._limits import Limits
from basis.demo._line import Line


@dataclass(frozen=True)
class Work:
    """What all visitors share: limits, the line, a folder for files, and the cores of a run."""

    limits: Limits
    line: Line
    folder: Path
    threads: int | None = None


def stop_desk(desk: Desk) -> None:
    """Ends the run of a desk, or gives up its place in line."""
    if desk.run is not None and desk.run.alive:
        desk.run.stop()  # which gives up the turn when it has ended
    elif desk.ticket is not None:
        desk.ticket.leave()
        desk.ticket = None


def sentence(error: object) -> str:
    """A sentence for the page."""
    text = str(error)
    return html.escape(text[:1].upper() + text[1:])
