"""Serving the page: on this computer alone unless told otherwise, and then behind a password."""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis.demo._limits import Limits

USER = "basis"
"""The name that goes with the password."""
LEAST = 8
"""Characters of a password, at least."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:; media-src 'self' data: blob:; worker-src 'self' blob:; "
    "frame-ancestors 'self'; form-action 'self'; base-uri 'self'"
)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this computer alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_door(host: str, password: str | None) -> None:
    """Refuses to be reached from elsewhere without a password that is worth its name."""
    if password is not None and len(password) < LEAST:
        raise BasisError(f"the password has {len(password)} characters; at least {LEAST} are asked")
    if not is_loopback(host) and password is None:
        raise BasisError(
            f"--host {host} can be reached from other computers, which needs a password: give "
            "--password-file FILE, or leave --host out to serve this computer alone"
        )


def make_app(limits: Limits, password: str | None = None, folder: Path | None = None) -> Any:
    """The page as an ASGI application.

    Args:
        limits: What visitors may ask for.
        password: Asked for before anything is shown, with the name `USER`.
        folder: Where files to download are written.
    """
    from basis.demo._line import Line
    from basis.demo._looks import CSS, theme
    from basis.demo._page import build_page, gradio
    from basis.demo._work import Work

    gr = gradio()
    import fastapi
    import torch

    cores = torch.get_num_threads()
    line = Line(limits.runs, limits.waiting, limits.idle)
    place = folder or Path(tempfile.mkdtemp(prefix="basis-page-"))
    work = Work(limits, line, place, max(1, cores // limits.runs))
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.work = work

    async def stay_here(request: Any, call_next: Any) -> Any:
        response = await call_next(request)
        # The browser is told as well: nothing is fetched from elsewhere, whatever a library asks.
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    app.middleware("http")(stay_here)
    return gr.mount_gradio_app(
        app,
        build_page(work),
        path="/",
        auth=None if password is None else (USER, password),
        # Above the page's own limit, which is told in a sentence; beyond this Gradio refuses.
        max_file_size=f"{int(limits.megabytes) + 32}mb",
        show_error=True,
        ssr_mode=False,
        footer_links=[],
        run_history=False,
        mcp_server=False,
        enable_monitoring=False,
        theme=theme(),
        css=CSS,
    )


def serve(
    host: str = "127.0.0.1",
    port: int = 7860,
    *,
    limits: Limits | None = None,
    password: str | None = None,
    browser: bool = False,
) -> None:
    """Serves the page until it is interrupted.

    Args:
        host: An address of this computer; others than loopback need a password.
        port: Where to listen; 0 takes any that is free.
        browser: Whether to open the page when it is there.
    """
    check_door(host, password)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    listening = _listen(host, port)
    from basis.demo._page import gradio

    gradio()
    import uvicorn

    from basis.demo._task import cached_prior

    with tempfile.TemporaryDirectory(prefix="basis-page-") as folder:
        cached_prior("mnist")
        app = make_app(limits or Limits(), password, Path(folder))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
        )
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"
        print(f"page: {url}  (Ctrl+C ends it)", flush=True)
        if password is not None:
            print(f"name: {USER}, and the password", flush=True)
        if browser:
            threading.Timer(1.0, webbrowser.open, (url,)).start()
        server.run(sockets=[listening])


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
