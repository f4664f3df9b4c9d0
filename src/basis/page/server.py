"""Serving the page: to this computer only, or to others with a password."""

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
from basis.page.access import HostNames, Limits, Visitors, is_loopback

USER = "basis"
"""The user name that belongs to the password."""
SHORTEST_PASSWORD = 8


def check_password(host: str, password: str | None) -> None:
    """Raises an error if others could reach the page without a good password."""
    if password is not None and len(password) < SHORTEST_PASSWORD:
        raise BasisError(
            f"the password has {len(password)} characters; at least {SHORTEST_PASSWORD} are needed"
        )
    if not is_loopback(host) and password is None:
        raise BasisError(
            f"--host {host} can be reached from other computers and needs a password: give "
            "--password-file FILE, or omit --host to serve this computer only"
        )


def make_app(
    limits: Limits | None = None,
    password: str | None = None,
    *,
    host: str = "127.0.0.1",
    names: Iterable[str] = (),
) -> Any:
    """The page as an ASGI application.

    Args:
        limits: What visitors may ask for.
        password: Asked for before anything is shown, with the user name `USER`.
        host: The address that the page is served at.
        names: Further host names that requests may use.
    """
    gr = _gradio()
    import fastapi
    import torch

    from basis.page.forms import Shared
    from basis.page.guard import Guard
    from basis.page.tabs import build_page
    from basis.page.views import CSS

    limits, visitors = limits or Limits(), Visitors()
    shared = Shared(
        limits,
        visitors,
        threading.BoundedSemaphore(limits.runs),
        max(1, torch.get_num_threads() // limits.runs),
    )
    page = build_page(shared)
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    megabytes = int(limits.megabytes) + 32  # smaller files get a sentence from the page
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
        theme=gr.themes.Default(  # with the fonts of the system, so that none is fetched
            primary_hue="indigo",
            secondary_hue="indigo",
            neutral_hue="slate",
            font=["system-ui", "sans-serif"],
            font_mono=["ui-monospace", "monospace"],
        ),
        css=CSS,
    )
    return Guard(app, page, visitors, HostNames(host, names), (megabytes + 1) * 1_000_000)


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
        host: An address of this computer; all but loopback addresses need a password.
        port: Where to listen; 0 takes any free port.
        limits: What visitors may ask for.
        password: Asked for before anything is shown.
        browser: Whether to open the page in a browser.
        names: Further host names that requests may use.
    """
    check_password(host, password)
    listening = _listen(host, port)
    _gradio()
    import uvicorn

    with tempfile.TemporaryDirectory(prefix="basis-page-") as folder, _uploads_in(folder):
        app = make_app(limits, password, host=host, names=names)
        # Without proxy headers: a client could otherwise choose the address it is known by.
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=2, proxy_headers=False
        )
        shown = "localhost" if host in ("0.0.0.0", "::") else host
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}/"
        print(f"page: {url}  (Ctrl+C stops it)", flush=True)
        if password is not None:
            print(f"user name: {USER}, and the password", flush=True)
        if browser:
            threading.Timer(1.0, webbrowser.open, (url,)).start()
        uvicorn.Server(config).run(sockets=[listening])


def _gradio() -> Any:
    """Gradio with its telemetry off, or an error that says what to install."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio as gr
    except ImportError as error:
        raise BasisError("the page needs Gradio: pip install 'basis-separation[page]'") from error
    return gr


@contextmanager
def _uploads_in(folder: str) -> Iterator[None]:
    """Uploads are stored in a folder that only this server uses and that is deleted with it."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    os.environ["GRADIO_TEMP_DIR"] = str(Path(folder).resolve() / "uploads")
    try:
        yield
    finally:
        del os.environ["GRADIO_TEMP_DIR"]
        if before is not None:
            os.environ["GRADIO_TEMP_DIR"] = before


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket; an error if the port is taken."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # If the protocol is given, asyncio sends small answers without delay.
        listening = socket.socket(family, proto=socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise BasisError(
            f"cannot listen on {host}, port {port}: {why}; give another --port, or 0 for any free "
            "port"
        ) from error
    return listening
