"""A web server of this machine, for tests of downloads."""

import functools
import http.server
import threading

import pytest


@pytest.fixture
def serve():
    """A function that offers a folder over HTTP and returns its address."""
    servers = []

    def start(folder) -> str:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                pass

        handler = functools.partial(Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
