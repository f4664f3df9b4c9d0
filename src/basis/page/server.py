"""Serving the page: on this computer alone unless told otherwise, and then behind a password."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from basis.errors import BasisError
from basis.page.limits import Limits
from basis.page.names import is_loopback

USER = "basis"
"""The name that goes with the password."""
LEAST = 8
"""Characters of a password, at least."""


def check_door(host: str, password: str | None) -> None:
    """Refuses to be reached from elsewhere without a password that is worth its name."""
    if password is not None and len(password) < LEAST:
        raise BasisError(f"the password has {len(password)} characters; at least {LEAST} are asked")
    if not is_loopback(host) and password is None:
        raise BasisError(
            f"--host {host} can be reached from other computers, which needs a password: give "
            "--password-file FILE, or leave --host out to serve this computer alone"
        )


def make_app(
    limits: Limits,
    password: str | None = None,
    folder: Path | None = None,
    *,
    host: str = "127.0.0.1",
    names: Iterable[str] = (),
) -> Any:
    """The page as an ASGI application.

    Args:
        limits: What visitors may ask for.
        password: Asked for before anything is shown, with the name `USER`.
        folder: Where files to download are written; below the system's temporary folder.
        host: The address that the page is served at.
        names: Further host names that requests may use.
    """
    from basis.page.guard import make_guard
    from basis.page.line import Line
    from basis.page.looks import CSS, theme
    from basis.page.page import build_page, gradio
    from basis.page.work import Work

    gr = gradio()
    import fastapi
    import torch

    cores = torch.get_num_threads()
    line = Line(limits.runs, limits.waiting, limits.idle)
    place = folder or Path(tempfile.mkdtemp(prefix="basis-page-"))
    work = Work(limits, line, place, max(1, cores // limits.runs))
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.work = work

    page = build_page(work)
    # Above the page's own limit, which is told in a sentence; beyond this Gradio refuses.
    megabytes = int(limits.megabytes) + 32
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        auth=None if password is None else (USER, password),
        max_file_size=f"{megabytes}mb",
        allowed_paths=[],
        show_error=True,
        ssr_mode=False,
        footer_links=[],
        run_history=False,
        mcp_server=False,
        enable_monitoring=False,
        theme=theme(),
        css=CSS,
    )
    return make_guard(app, page, host, names, (megabytes + 1) * 1_000_000)


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    *,
    limits: Limits | None = None,
    password: str | None = None,
    browser: bool = False,
    names: Iterable[str] = (),
) -> None:
    """Serves the page until it is interrupted.

    Args:
        host: An address of this computer; others than loopback need a password.
        port: Where to listen; 0 takes any that is free.
        names: Further host names that requests may use.
        browser: Whether to open the page when it is there.
    """
    check_door(host, password)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    listening = _listen(host, port)
    from basis.page.page import gradio

    gradio()
    import uvicorn

    from basis.page.task import cached_prior

    with tempfile.TemporaryDirectory(prefix="basis-page-") as folder, _cache_in(folder):
        cached_prior("mnist")
        app = make_app(limits or Limits(), password, Path(folder), host=host, names=names)
        # Without proxy headers: a client could otherwise choose the address that it is known by.
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", timeout_graceful_shutdown=2, proxy_headers=False
            )
        )
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"
        print(f"page: {url}  (Ctrl+C ends it)", flush=True)
        if password is not None:
            print(f"name: {USER}, and the password", flush=True)
        if browser:
            threading.Timer(1.0, webbrowser.open, (url,)).start()
        server.run(sockets=[listening])


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Uploads go to a folder that only this server uses and that is deleted with it."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    os.environ["GRADIO_TEMP_DIR"] = str(Path(folder).resolve() / "uploads")
    try:
        yield
    finally:
        if before is None:
            del os.environ["GRADIO_TEMP_DIR"]
        else:
            os.environ["GRADIO_TEMP_DIR"] = before


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a taken port is one line and not a page that never comes."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise BasisError(
            f"cannot listen on {host}, port {port}: {why}; give another --port, or 0 for any that "
            "is free"
        ) from error
    return listening
