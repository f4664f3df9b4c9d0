"""What the tabs share: the line and the limits, and the end of a run."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from basis.page.desk import Desk
from basis.page.limits import Limits
from basis.page.line import Line


@dataclass(frozen=True)
class Work:
    """What all visitors share: limits, the line, a folder for files, and the cores of a run.

    Attributes:
        results: The files that the page offers for download, at the paths they are served from.
    """

    limits: Limits
    line: Line
    folder: Path
    threads: int | None = None
    results: set[str] = field(default_factory=set)

    def offer(self, paths: Iterable[str]) -> list[str]:
        """Copies files to where Gradio serves them from, and remembers that they may be fetched.

        Gradio names the folder of such a file by a hash of its content, so that nobody can guess
        the address of another visitor's result.
        """
        from gradio.processing_utils import save_file_to_cache
        from gradio.utils import get_upload_folder

        served = [str(save_file_to_cache(path, get_upload_folder())) for path in paths]
        self.results.update(served)
        return served


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
