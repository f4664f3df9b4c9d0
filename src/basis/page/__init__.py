"""The web page of `basis page`, on which digits and photos are mixed and separated.

Gradio and torch are imported when a page is made.
"""

from __future__ import annotations

from basis.page.access import Limits
from basis.page.server import make_app, serve

__all__ = ["Limits", "make_app", "serve"]
