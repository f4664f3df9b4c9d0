"""A local page on which mixtures are made and pulled apart: `basis page`.

Everything that needs Gradio is loaded where a page is built; the work behind it (uploads, the line
of waiting visitors, separations that can be stopped) does without."""

from __future__ import annotations

from basis.page.limits import Limits
from basis.page.line import Line
from basis.page.page import build_page
from basis.page.run import Run
from basis.page.server import make_app, serve
from basis.page.task import Task, Way
from basis.page.uploads import read_upload

__all__ = [
    "Limits",
    "Line",
    "Run",
    "Task",
    "Way",
    "build_page",
    "make_app",
    "read_upload",
    "serve",
]
