"""A local page on which mixtures are made and pulled apart: `basis demo`.

Everything that needs Gradio is loaded where a page is built; the work behind it (uploads, the line
of waiting visitors, separations that can be stopped) does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import lazy_door

if TYPE_CHECKING:
    from basis.demo._limits import Limits as Limits
    from basis.demo._line import Line as Line
    from basis.demo._page import build_page as build_page
    from basis.demo._run import Run as Run
    from basis.demo._server import make_app as make_app
    from basis.demo._server import serve as serve
    from basis.demo._task import Task as Task
    from basis.demo._task import Way as Way
    from basis.demo._uploads import read_upload as read_upload

_HOMES = {
    "Limits": "_limits",
    "Line": "_line",
    "Run": "_run",
    "Task": "_task",
    "Way": "_task",
    "build_page": "_page",
    "make_app": "_server",
    "read_upload": "_uploads",
    "serve": "_server",
}

__all__ = list(_HOMES)
__getattr__ = lazy_door(__name__, _HOMES)
