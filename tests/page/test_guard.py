"""Attacks on the running page by raw requests: files, host names, odd values, passwords."""

import asyncio
import contextlib
import copy
import io
import itertools
import json
import os
import socket
import sys
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio")
httpx = pytest.importorskip("httpx")

import basis  # noqa: E402

API = "/gradio_api"
SENTENCE = "only a file that you uploaded on this page can be used; please upload it again"
PASSWORD = "long enough"


def picture(seed, side=40):
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


class Page:
    def __init__(self, url, app, cache):
        self.url, self.app, self.cache = url, app, cache
        self.numbers = itertools.count()
        self.loop = asyncio.new_event_loop()  # for requests without a network

    @contextlib.contextmanager
    def visitor(self):
        with httpx.Client(base_url=self.url, timeout=20) as client:
            client.session = f"session{next(self.numbers)}"
            client.get("/")
            yield client

    def cached(self):
        return {path for path in self.cache.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def page(start_page, cache):
    page = Page(*start_page(), cache)
    yield page
    page.loop.close()


@pytest.fixture(scope="module")
def locked(start_page, cache):
    page = Page(*start_page(PASSWORD), cache)
    yield page
    page.loop.close()


@pytest.fixture(scope="module")
def events(page):
    """A request of every event that is accepted, made from the page's own description."""
    with page.visitor() as client:
        config = client.get("/config").json()
    blocks = {c["id"]: c for c in config["components"]}
    return [request_of(d, blocks) for d in config["dependencies"] if d["backend_fn"]]


def request_of(dependency, blocks):
    kinds = [blocks[i]["type"] for i in dependency["inputs"]]
    values = []
    for place in dependency["inputs"]:
        kind, props = blocks[place]["type"], blocks[place]["props"]
        values.append(None if kind in ("state", "file") else props.get("value"))
    target = dependency["targets"][0]
    return {
        "data": values,
        "event_data": {"index": 0, "png": "data:image/png;base64,"},
        "fn_index": dependency["id"],
        "trigger_id": target[0],
        "kinds": kinds,
        "route": f"{API}/queue/join" if dependency["queue"] else f"{API}/run/predict",
    }


def send(client, request, **changes):
    body = {k: v for k, v in request.items() if k not in ("kinds", "route")}
    body |= {"session_hash": client.session} | changes
    return client.post(request["route"], json=body)


def knock(page, client, method, target, body=b""):
    """The answer to a request that is handed to the application without a network."""
    path, _, query = target.partition("?")
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    headers = {"host": "127.0.0.1", "cookie": cookies, "content-type": "application/json"}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "root_path": "", "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 80),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    answered = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        answered.append(message)

    page.loop.run_until_complete(page.app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in answered)
    return httpx.Response(answered[0]["status"], content=content)


def knock_event(page, client, request, **changes):
    body = {k: v for k, v in request.items() if k not in ("kinds", "route")}
    body |= {"session_hash": client.session} | changes
    return knock(page, client, "POST", request["route"], json.dumps(body).encode())


def file_data(path):
    return {"path": str(path), "meta": {"_type": "gradio.FileData"}}


def upload(client, content, name="one.png"):
    answer = client.post(f"{API}/upload", files={"files": (name, content)})
    assert answer.status_code == 200, answer.text
    return answer.json()[0]


def uploaded_event(events):
    return next(e for e in events if "file" in e["kinds"])


def with_file(request, value):
    data = [value if kind == "file" else old
            for old, kind in zip(request["data"], request["kinds"], strict=True)]  # fmt: skip
    return request | {"data": data}


def without_alphas(request):
    """A separation that ends at once with an error, as all alphas are zero."""
    data = [0 if kind == "slider" else value
            for value, kind in zip(request["data"], request["kinds"], strict=True)]  # fmt: skip
    return request | {"data": data}


def result(client):
    """What the page sends for the events of a session, until the last has ended."""
    words, until = [], time.monotonic() + 30
    with client.stream("GET", f"{API}/queue/data", params={"session_hash": client.session}) as s:
        for line in s.iter_lines():
            words.append(line)
            assert time.monotonic() < until, f"no end of the events: {words}"
            if '"process_completed"' in line or '"close_stream"' in line:
                break
    return "\n".join(words)


def refusal(answer):
    assert answer.status_code >= 400
    body = answer.json()
    assert "\n" not in body["detail"] and "Traceback" not in answer.text
    return body["detail"]


def test_own_upload_is_read_and_no_other_file(page, events, tmp_path):
    canary = tmp_path / "private.png"
    canary.write_bytes(picture(1))
    event = uploaded_event(events)
    with page.visitor() as one, page.visitor() as two:
        mine = upload(one, picture(2))
        assert "uploaded" in send(one, with_file(event, file_data(mine))).text
        before = page.cached()
        said = {
            refusal(send(client, with_file(event, file_data(path))))
            for client, path in (
                (one, canary),
                (one, tmp_path / "missing.png"),
                (two, mine),
            )
        }
        assert said == {SENTENCE}
        assert page.cached() == before, "nothing is copied"
        # The same holds for fetching files.
        assert one.get(f"{API}/file={mine}").content == picture(2)
        for client, path in ((one, canary), (two, mine), (one, tmp_path / "missing.png")):
            assert refusal(client.get(f"{API}/file={path}")) == SENTENCE


def test_a_file_behind_the_password_is_not_read_either(locked, events, tmp_path):
    canary = tmp_path / "private.png"
    canary.write_bytes(picture(1))
    event = uploaded_event(events) | {"trigger_id": None}
    with locked.visitor() as client:
        assert send(client, event).status_code == 401
        for route in ("/gradio_api/heartbeat/abcdefgh", "/gradio_api/cancel"):
            assert client.request("POST" if "cancel" in route else "GET", route).status_code == 401
        client.post("/login", data={"username": "basis", "password": PASSWORD})
        assert refusal(send(client, with_file(event, file_data(canary)))) == SENTENCE
        mine = upload(client, picture(3))
        assert "uploaded" in send(client, with_file(event, file_data(mine))).text


def test_a_device_does_not_freeze_the_page(page, events):
    event = uploaded_event(events)
    with page.visitor() as client, page.visitor() as other:
        started = time.monotonic()
        assert refusal(send(client, with_file(event, file_data("/dev/zero")))) == SENTENCE
        assert other.get("/").status_code == 200
        assert time.monotonic() - started < 3


OPENING = {
    "open", "os.listdir", "os.scandir", "os.link", "os.symlink", "os.rename", "os.remove",
    "os.truncate", "shutil.copyfile", "shutil.move", "shutil.copytree", "shutil.rmtree",
    "subprocess.Popen", "socket.getaddrinfo", "socket.connect", "urllib.Request",
}  # fmt: skip
"""The audit events of Python that open, list, copy or remove a path, or reach another machine."""


@pytest.fixture(scope="module")
def opened():
    """What this process opens, in all of its threads, while it is watched."""
    seen, on = [], [False]

    def watch(name, arguments):
        if on[0] and name in OPENING:
            seen.extend(place for place in map(as_place, arguments[:2]) if place)

    sys.addaudithook(watch)
    yield seen, on
    on[0] = False


def as_place(argument):
    """An argument of an audit event as text; None for modes, flags and numbers of open files."""
    if isinstance(argument, bytes | os.PathLike):
        return os.fsdecode(argument)
    if isinstance(argument, tuple):
        return str(argument)
    return argument if isinstance(argument, str) and len(argument) > 3 else None


def outside(seen, page):
    """What was opened that is neither in the upload folder nor part of the program itself."""
    import matplotlib

    own = [
        matplotlib.get_cachedir(),
        page.cache,
        sys.prefix,
        sys.base_prefix,
        Path(basis.__file__).parent,
        Path(__file__),
    ]
    roots = [os.path.realpath(place) for place in own]
    asked = {"127.0.0.1", str(("127.0.0.1", int(page.url.rpartition(":")[2])))}  # by the tests
    return [p for p in seen if p not in asked and not any(is_inside(p, root) for root in roots)]


def is_inside(place, root):
    try:
        found = os.path.realpath(place)
    except (OSError, ValueError):
        return False
    return found == root or found.startswith(root + os.sep)


def test_the_watch_sees_what_the_page_opens(page, events, tmp_path, opened):
    """Otherwise the tests below would show nothing."""
    seen, on = opened
    event = uploaded_event(events)
    with page.visitor() as client:
        mine = upload(client, picture(5))
        seen.clear()
        on[0] = True
        with contextlib.suppress(OSError):
            open(tmp_path / "elsewhere")  # noqa: SIM115
        assert "uploaded" in send(client, with_file(event, file_data(mine))).text
        on[0] = False
    assert mine in seen
    assert outside(seen, page) == [str(tmp_path / "elsewhere")]


def hostile_paths(page, tmp_path):
    canary = tmp_path / "canary.png"
    canary.write_bytes(picture(9))
    link = tmp_path / "link.png"
    link.symlink_to(canary)
    page.cache.mkdir(parents=True, exist_ok=True)
    inside = page.cache / "inside.png"
    if not inside.is_symlink():
        inside.symlink_to(canary)
    planted = page.cache / "planted.png"
    planted.write_bytes(picture(10))
    return [
        canary, link, inside, planted, tmp_path, page.cache, tmp_path / "missing.png",
        os.path.relpath(canary), f"{page.cache}/../{canary.name}", f"//{canary}",
        f"/proc/self/root{canary}", "/proc/self/environ", "/proc/self/fd/0", "/dev/zero",
        "/dev/stdin", "/etc/passwd", f"file://{canary}", "http://127.0.0.1:9/canary.png",
        "https://canary.invalid/canary.png", "~/canary.png", f"{canary}\0.png", "", ".", "canary",
        f"{canary}".replace("/", "\\"),
    ]  # fmt: skip


def test_no_argument_of_any_event_opens_a_path(page, events, tmp_path, opened):
    """Every hostile path in every form, in every argument and in the details of every event."""
    paths = hostile_paths(page, tmp_path)
    seen, on = opened
    with page.visitor() as client:
        mine = upload(client, picture(4))
        before = page.cached()
        seen.clear()
        on[0] = True
        tried = 0
        for event in events:
            for place in range(len(event["data"])):
                for path in paths:
                    for value in (
                        file_data(path),
                        file_data(mine) | {"path": str(path), "url": mine},
                        {"path": str(path)},
                        {"url": str(path)},
                        [file_data(path)],
                        {"a": [{"b": file_data(path)}]},
                        str(path),
                    ):
                        data = copy.copy(event["data"])
                        data[place] = value
                        refusal(knock_event(page, client, event, data=data))
                        tried += 1
            for path in paths:
                details = {"index": 0, "png": file_data(path)}
                answer = knock_event(page, client, event, event_data=details)
                assert refusal(answer) == SENTENCE
        on[0] = False
        assert tried > 10_000
        assert page.cached() == before, "nothing is copied to the cache"
    assert outside(seen, page) == []
    assert not set(seen) & {str(path) for path in paths}, "not even in the upload folder"


def test_no_text_in_the_details_of_an_event_opens_a_path(page, events, tmp_path, opened):
    """Text is what a drawing is sent as: it reaches the listener, and must be no path there."""
    seen, on = opened
    paths = hostile_paths(page, tmp_path)
    with page.visitor() as client:
        before = page.cached()
        seen.clear()
        on[0] = True
        answered = 0
        for event, path in itertools.product(events, paths):
            details = {"png": str(path), "index": 0, "value": file_data(path)}
            refusal(knock_event(page, client, event, event_data=details))
            if page.app.events.detail_of(event["fn_index"]) == "png":
                details = {"png": str(path), "value": str(path), "target": str(path)}
                assert send(client, event, event_data=details).status_code == 200
                answered += 1
        on[0] = False
        assert answered > len(paths)
        assert page.cached() == before
    assert outside(seen, page) == []
    assert not set(seen) & {str(path) for path in paths}


def test_no_other_part_of_a_request_opens_a_path(page, events, tmp_path, opened):
    """Names of uploads, numbers, sessions, queries, headers, cookies and the login form."""
    seen, on = opened
    paths = [str(path) for path in hostile_paths(page, tmp_path)]
    with page.visitor() as client:
        kept = page.cached()
        seen.clear()
        on[0] = True
        for path in paths:
            if path == "canary":
                continue  # it is a number of an upload and a session like any other
            name = json.dumps(path)[1:-1]
            part = f'--a\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
            form = {"Content-Type": "multipart/form-data; boundary=a"}
            answer = client.post(
                f"{API}/upload", content=f"{part}content\r\n--a--\r\n".encode(), headers=form
            )
            if answer.status_code == 200:
                assert all(
                    is_inside(place, os.path.realpath(page.cache)) for place in answer.json()
                )
            query = {"upload_id": path, "session_hash": path, "event_id": path, "path": path,
                     "file": path, "url": path, "__theme": path, "view": path}  # fmt: skip
            alive = f"heartbeat/{query_safe(path)}"
            for route in ("upload", "upload_progress", "queue/data", alive):
                method = "POST" if route == "upload" else "GET"
                answer = client.request(method, f"{API}/{route}", params=query, headers=form)
                assert answer.status_code >= 400 or answer.text == "[]", (route, path)
            for body in ({"session_hash": path}, {"event_id": path}, {"fn_index": path}, query):
                full = {"session_hash": client.session, "fn_index": 0, "event_id": "a"} | body
                for route in ("cancel", "queue/join", "run/predict"):
                    assert client.post(f"{API}/{route}", json=full).status_code >= 400
            login = {"username": path, "password": path}
            assert client.post("/login", data=login).status_code == 404  # there is no password
            sent = {name: query_safe(path) for name in FORGED}
            for route in ("/config", "/theme.css"):
                answer = client.get(route, params=query, headers=sent)
                assert "root:x:" not in answer.text and picture(9) not in answer.content
        on[0] = False
        new = page.cached() - kept
    assert all(path.read_bytes() == b"content" for path in new)
    assert outside(seen, page) == []
    assert set(seen) & set(paths) <= {str(page.cache)}


FORGED = ("X-Gradio-Server", "X-Gradio-User", "Referer", "Range", "If-Range", "X-Sendfile",
          "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Prefix", "X-Direct-Url")  # fmt: skip


def query_safe(text):
    return urllib.parse.quote(text.encode(errors="surrogateescape"), safe="")


def test_no_route_gives_a_path(page, tmp_path, opened):
    paths = hostile_paths(page, tmp_path)
    seen, on = opened
    routes = (
        "/gradio_api/file=", "/gradio_api/file/", "/file=", "/file/", "/gradio_api/proxy=",
        "/assets/", "/static/", "/svelte/", "/assets/../", "/assets/%2e%2e/", "/theme/",
        "/gradio_api/stream/", "/gradio_api/custom_component/",
        "/gradio_api/upload_progress?upload_id=",
    )  # fmt: skip
    canaries = (picture(9), picture(10))
    with page.visitor() as client:
        seen.clear()
        on[0] = True
        for route, path, method in itertools.product(routes, paths, ("GET", "POST")):
            answer = knock(page, client, method, f"{route}{path}")
            assert all(canary not in answer.content for canary in canaries)
            assert "root:x:" not in answer.text
            assert answer.status_code >= 400 or route.startswith(("/?", "/config", "/assets/.."))
        on[0] = False
    assert outside(seen, page) == []
    assert not set(seen) & {str(path) for path in paths}


@pytest.mark.parametrize(
    "route",
    [
        "/openapi.json", "/docs", "/gradio_api/openapi.json", "/gradio_api/info", "/monitoring",
        "/monitoring/summary", "/gradio_api/dev/reload", "/gradio_api/deep_link?session_hash=a",
        "/gradio_api/mcp/", "/gradio_api/component_server", "/gradio_api/process_recording",
        "/gradio_api/vibe-edit", "/gradio_api/runs", "/gradio_api/queue/status",
        "/gradio_api/call/predict", "/gradio_api/api/predict", "/gradio_api/run/other",
        "/gradio_api/startup-events", "/gradio_api/token", "/pwa_icon/100000",
    ],
)  # fmt: skip
def test_routes_that_the_page_does_not_use_are_not_served(page, route):
    with page.visitor() as client:
        for method in ("GET", "POST", "PUT", "OPTIONS"):
            assert client.request(method, route, json={}).status_code == 404


ROUTES = [
    ("GET", "/"), ("GET", "/config"), ("GET", "/theme.css"), ("POST", f"{API}/queue/join"),
    ("POST", f"{API}/run/predict"), ("POST", f"{API}/upload"), ("POST", "/login"),
    ("GET", f"{API}/queue/data?session_hash=abcdefgh"), ("GET", f"{API}/heartbeat/abcdefgh"),
    ("GET", f"{API}/file=/etc/passwd"), ("OPTIONS", f"{API}/queue/join"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "route"), ROUTES)
def test_other_hosts_and_origins_are_refused(page, method, route):
    port = page.url.rpartition(":")[2]
    with page.visitor() as client:
        for host in (
            "evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.nip.io",
            "192.168.1.4", "0.0.0.0", "[::2]", "localhost:99999", "a b", "",
        ):  # fmt: skip
            answer = client.request(method, route, headers={"Host": host})
            assert answer.status_code in (400, 421), host
            assert "access-control-allow-origin" not in answer.headers
        for origin in (
            "http://evil.example", "null", "http://localhost", f"http://127.0.0.1:{port}.evil",
            f"http://evil.example:{port}", f"http://user@127.0.0.1:{port}", "file://", "http://[",
        ):  # fmt: skip
            answer = client.request(method, route, headers={"Origin": origin})
            assert answer.status_code == 403, origin
            assert "access-control-allow-origin" not in answer.headers
        forwarded = {"X-Forwarded-Host": "evil.example"}
        assert client.request(method, route, headers=forwarded).status_code == 421


def test_the_address_of_the_page_is_not_taken_from_a_header(page):
    with page.visitor() as client:
        for route in ("/", "/config"):
            answer = client.get(route, headers={"X-Gradio-Server": "http://evil.example"})
            assert answer.status_code == 200 and "evil.example" not in answer.text


def test_own_names_are_answered(page):
    port = page.url.rpartition(":")[2]
    with page.visitor() as client:
        for host in ("localhost", "127.0.0.1", "127.0.0.2", "[::1]", "LOCALHOST"):
            headers = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
            assert client.get("/config", headers=headers).status_code == 200


def test_websockets_are_refused(page):
    port = int(page.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(
            b"GET /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert raw.recv(100).split()[1] in (b"403", b"404", b"400")


def test_names_of_a_page_for_others():
    from basis.page.access import HostNames

    every = HostNames("0.0.0.0", ["page.example.org"])
    assert every.accepts("page.example.org") and every.accepts("Page.Example.Org.")
    assert every.accepts(socket.gethostname())
    assert every.accepts("192.168.1.4", "192.168.1.4")
    assert not every.accepts("192.168.1.4", "192.168.1.5")
    assert not every.accepts("evil.example", "evil.example")
    assert every.accepts_origin("https://page.example.org", "page.example.org")
    assert not every.accepts_origin("http://page.example.org:81", "page.example.org")
    one = HostNames("192.168.1.4")
    assert one.accepts("192.168.1.4") and one.accepts("127.0.0.1")
    assert not one.accepts("192.168.1.5", "192.168.1.5") and not one.accepts(socket.gethostname())


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


def test_odd_values_are_one_sentence_and_no_traceback(page, events, capfd, caplog):
    """Wrong types, counts, sizes and shapes, in every argument of every event."""
    odd = [True, -1, 1e308, 10**60, "x", "", "1" * 5000, [], {}, [1], {"a": 1}, nested(20)]
    odd += [{"meta": None, "path": "x"}, {"meta": 3}, {"__type__": "update", "value": 1}]
    with page.visitor() as client:
        for event in events:
            for place, kind in enumerate(event["kinds"]):
                for value in odd if kind != "checkbox" else odd[1:]:
                    data = list(event["data"])
                    data[place] = value
                    refusal(knock_event(page, client, event, data=data))
        first = events[0]
        for changes in (
            {"fn_index": None}, {"fn_index": 10**9}, {"fn_index": -1}, {"fn_index": "0"},
            {"fn_index": 1.5}, {"fn_index": []}, {"data": None}, {"data": {}}, {"data": []},
            {"data": first["data"] + [1]}, {"trigger_id": 10**9}, {"trigger_id": "x"},
            {"session_hash": None}, {"session_hash": ""}, {"session_hash": {}},
            {"session_hash": "../../x"}, {"event_data": None}, {"event_data": 3},
            {"event_data": {"index": None}}, {"event_data": {"index": 10**9}},
            {"event_data": {"index": "x"}},
        ):  # fmt: skip
            refusal(send(client, first, **changes))
        for raw in (
            b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"data":[NaN]}',
            b'{"fn_index":' + b"9" * 5000 + b"}", b'{"a":' * 50_000,
        ):  # fmt: skip
            for route in ("queue/join", "run/predict", "cancel"):
                refusal(client.post(f"{API}/{route}", content=raw))
        long = client.post(f"{API}/queue/join", content=b" " * 2_000_000)
        assert long.status_code == 413
        for content, kind in ((b"x", "multipart/form-data"), (b"", "text/plain"),
                              (b"--a\r\nx", "multipart/form-data; boundary=a")):  # fmt: skip
            headers = {"Content-Type": kind}
            answer = client.post(f"{API}/upload", content=content, headers=headers)
            assert answer.status_code < 500
        assert client.get(f"{API}/queue/data?session_hash=neverused").status_code == 404
        assert client.get("/").status_code == 200
    said = "".join(capfd.readouterr()) + caplog.text
    assert "Traceback" not in said


def test_a_drawing_that_is_not_a_png_is_refused_by_the_page(page, events, capfd):
    with page.visitor() as client:
        drawn = [e for e in events if page.app.events.detail_of(e["fn_index"]) == "png"]
        for event in drawn:
            details = {"png": "data:image/png;base64,####"}
            assert send(client, event, event_data=details).status_code == 200
        assert len(drawn) == 2
    assert "Traceback" not in "".join(capfd.readouterr())


def test_our_own_errors_are_one_line(monkeypatch, caplog):
    from basis.page.events import logged

    def listener(value):
        raise ValueError("first\nsecond")

    def stream(value):
        yield 1
        raise KeyError("gone")

    gr = pytest.importorskip("gradio")
    with pytest.raises(gr.Error) as caught:
        logged(listener)(1)
    assert caught.value.print_exception is False and "first" not in str(caught.value)
    with pytest.raises(gr.Error):
        list(logged(stream)(1))
    assert [r.getMessage() for r in caplog.records] == [
        "listener failed: ValueError: first second", "stream failed: KeyError: 'gone'"
    ]  # fmt: skip


def test_uploads_are_limited(page):
    size = 42_000_000
    with page.visitor() as client:
        port = int(page.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            raw.sendall(
                b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: multipart/form-data; boundary=a\r\n"
                b"Content-Length: 42000000\r\n\r\n"
            )
            assert raw.recv(100).split()[1] == b"413"

        def chunks():
            yield b'--a\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
            for _ in range(size // 1_000_000):
                yield bytes(1_000_000)

        headers = {"Content-Type": "multipart/form-data; boundary=a"}
        try:
            answer = client.post(f"{API}/upload", content=chunks(), headers=headers)
        except httpx.TransportError:
            pass  # the server hung up before all was sent
        else:
            assert answer.status_code in (400, 413)


def test_sessions_belong_to_one_visitor(page, events):
    event = without_alphas(next(e for e in events if e["route"].endswith("join")))
    with page.visitor() as one, page.visitor() as two:
        assert send(one, event).status_code == 200
        result(one)
        two.session = one.session
        assert send(two, event).status_code == 403
        for route in (f"queue/data?session_hash={one.session}", f"heartbeat/{one.session}"):
            assert two.get(f"{API}/{route}").status_code == 403
        forged = httpx.Client(base_url=page.url)
        for name, value in one.cookies.items():
            forged.cookies.set(name, value[:-1] + ("0" if value[-1] != "0" else "1"))
        forged.session = one.session
        assert send(forged, event).status_code == 403


def test_events_of_one_visitor_are_limited_and_not_those_of_others(page, events):
    event = next(e for e in events if e["route"].endswith("join"))
    queue = page.app.page._queue
    with page.visitor() as one, page.visitor() as two:
        assert send(one, without_alphas(event)).status_code == 200
        result(one)
        queue.pending_event_ids_session[one.session] = set("abcd")
        try:
            assert send(one, event, session_hash="another0").status_code == 429
            assert send(two, without_alphas(event)).status_code == 200
            result(two)
        finally:
            del queue.pending_event_ids_session[one.session]


def test_the_visitor_cookie_is_not_for_scripts(page):
    with httpx.Client(base_url=page.url) as client:
        cookie = client.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite" in cookie


def test_wrong_passwords_are_answered_late_without_holding_others(locked):
    wrong = {"username": "basis", "password": "not this one"}
    with locked.visitor() as client:
        took = []
        for _ in range(3):
            started = time.monotonic()
            assert client.post("/login", data=wrong).status_code == 400
            took.append(time.monotonic() - started)
        assert took[0] >= 0.5 and took[1] >= 1.0 and took[2] >= 2.0

        async def many():
            async with httpx.AsyncClient(base_url=locked.url, timeout=30) as others:
                guesses = [asyncio.create_task(others.post("/login", data=wrong)) for _ in range(8)]
                await asyncio.sleep(0.3)
                started = time.monotonic()
                assert (await others.get("/")).status_code == 200
                waited = time.monotonic() - started
                for guess in guesses:
                    if not guess.done():
                        guess.cancel()
                done = [g.result() for g in guesses if g.done() and not g.cancelled()]
                return waited, [answer.status_code for answer in done]

        waited, codes = asyncio.run(many())
        assert waited < 2 and 429 in codes
