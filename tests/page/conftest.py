"""A page that is served on this computer, for requests and for a browser."""

import socket
import threading

import pytest

pytest.importorskip("gradio")

from basis.page import Limits, make_app


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The folder of uploads, which Gradio reads from the environment: one for the process."""
    folder = tmp_path_factory.mktemp("uploads") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def start_page(cache):
    """A function that serves a page and returns its address and the application."""
    import uvicorn

    servers = []

    def start(password=None, **limits):
        app = make_app(Limits(**{"runs": 1, "samples": 2, **limits}), password)
        listening = socket.socket(proto=socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}", app

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(20)
