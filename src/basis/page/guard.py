"""What every request to the page passes before Gradio sees it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import urllib.parse
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from basis.page.inputs import NOT_YOURS, Events, RefusedError, parse, session_of
from basis.page.names import Names, split_host
from basis.page.visitors import Visitors, is_plain_file, read_cookies

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("basis.page")

_API = "/gradio_api"
_FILE = f"{_API}/file="
_HEARTBEAT = f"{_API}/heartbeat/"
_PAGES = {
    ("GET", "/"),
    ("HEAD", "/"),
    ("GET", "/config"),
    ("GET", "/theme.css"),
    ("GET", "/favicon.ico"),
    ("GET", "/manifest.json"),
    ("GET", "/robots.txt"),
    ("GET", "/logout"),
    ("GET", f"{_API}/app_id"),
}
_ASSETS = ("/assets/", "/static/", "/svelte/")
_ASSET = re.compile(r"[A-Za-z0-9._@+ ~/-]{1,300}")
_UPLOAD_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        b"connect-src 'self' data: blob:; media-src 'self' data: blob:; worker-src 'self' blob:; "
        b"frame-ancestors 'self'; form-action 'self'; base-uri 'self'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_JSON_BYTES = 1_000_000
_LOGIN_BYTES = 16_000
_UNKNOWN = "there is nothing here"


class Guard:
    """An ASGI application in front of the page.

    It answers on the server's own names only, lets through the routes that the page uses and no
    others, checks the values of every event, binds uploads and sessions to the browser that made
    them, limits the size of requests, and slows down the guessing of passwords.

    Args:
        app: The page, a FastAPI application with Gradio mounted at its root.
        page: The `gradio.Blocks` of the page.
        names: The host names that are answered.
        upload_bytes: The largest upload, with its envelope.
    """

    def __init__(self, app: Any, page: Any, names: Names, upload_bytes: int) -> None:
        self.app, self.page, self.names, self.upload_bytes = app, page, names, upload_bytes
        self._inner = app.routes[-1].app  # Gradio's own application, which keeps the logins
        self.events = Events(page)
        self.visitors = Visitors()
        self.attempts = Attempts()

    @property
    def state(self) -> Any:
        """The state of the application behind."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _Request(self, scope, receive, send).answer()
        else:  # the page uses no websockets
            await send({"type": "websocket.close", "code": 1008})

    def logged_in(self, cookies: dict[str, str]) -> bool:
        """Whether a request comes from a visitor who gave the password, where one is asked for."""
        if self.page.auth is None:
            return True
        inner = self._inner
        kinds = ("access-token", "access-token-unsecure")
        return any(cookies.get(f"{kind}-{inner.cookie_id}") in inner.tokens for kind in kinds)

    def given(self, path: str) -> bool:
        """Whether a path is a result that the page offers for download."""
        return path in self.state.work.results and is_plain_file(path)


class _Request:
    """One HTTP request on its way through the guard."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard, self.scope, self.receive, self.outer = guard, scope, receive, send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # Gradio takes the address of the page from `x-gradio-server`, whatever it says.
        self.headers: list[tuple[bytes, bytes]] = [
            (name, value) for name, value in scope["headers"] if name.lower() != b"x-gradio-server"
        ]
        self.cookies = read_cookies("; ".join(self._all("cookie")))
        self.new_cookie: str | None = None
        self.started = self.ended = self.failed = False

    async def answer(self) -> None:
        """Answers the request, or refuses it with one sentence."""
        try:
            self._check_source()
            await self._route()
        except RefusedError as refusal:
            await self._refuse(refusal.sentence, refusal.status)
        except Exception as error:
            log.error("%s %s failed: %s", self.method, self.path[:80], _in_short(error))
            await self._refuse("the page could not answer this request", 500)

    def _check_source(self) -> None:
        """Refuses requests that name another server or come from another site's page."""
        reached = (self.scope.get("server") or (None,))[0]
        hosts = self._all("host")
        host = split_host(hosts[0]) if len(hosts) == 1 else None
        if host is None or not self.guard.names.accepts(host[0], reached):
            raise RefusedError("this server does not answer to that host name", 421)
        for origin in self._all("origin"):
            if not self.guard.names.accepts_origin(origin, hosts[0], reached):
                raise RefusedError("requests from other sites are not accepted", 403)
        for forwarded in self._all("x-forwarded-host"):
            for part in forwarded.split(","):
                proxied = split_host(part.strip())
                if proxied is None or not self.guard.names.accepts(proxied[0], reached):
                    raise RefusedError("this server does not answer to that host name", 421)

    async def _route(self) -> None:
        """Passes the request on if the page uses its route."""
        route = (self.method, self.path)
        if route in _PAGES:
            await self._pass(query="")
        elif self.method in ("GET", "HEAD") and self.path.startswith(_ASSETS):
            if not _ASSET.fullmatch(self.path) or ".." in self.path:
                raise RefusedError(_UNKNOWN, 404)
            await self._pass(query="")
        elif route == ("POST", "/login") and self.guard.page.auth is not None:
            await self._log_in()
        elif self.method not in ("GET", "HEAD", "POST") or not self.path.startswith(f"{_API}/"):
            raise RefusedError(_UNKNOWN, 404)
        elif not self.guard.logged_in(self.cookies):
            raise RefusedError("Not authenticated", 401)
        else:
            await self._route_api(route)

    async def _route_api(self, route: tuple[str, str]) -> None:
        guard, visitor = self.guard, self._visitor()
        query = urllib.parse.parse_qs(
            self.scope.get("query_string", b"").decode("latin-1"), max_num_fields=8
        )
        match route:
            case ("POST", "/gradio_api/queue/join") | ("POST", "/gradio_api/run/predict"):
                queued = self.path.endswith("/join")
                body = parse(await self._body(_JSON_BYTES))
                checked = guard.events.check(
                    body, queued, lambda p: guard.visitors.owns(p, visitor)
                )
                guard.visitors.claim(checked["session_hash"], visitor)
                await self._pass(query="", body=json.dumps(checked).encode())
            case ("POST", "/gradio_api/cancel"):
                checked = guard.events.check_cancel(parse(await self._body(_JSON_BYTES)))
                guard.visitors.claim(checked["session_hash"], visitor)
                await self._pass(query="", body=json.dumps(checked).encode())
            case ("POST", "/gradio_api/upload"):
                await self._upload(visitor, query)
            case ("GET", "/gradio_api/upload_progress"):
                number = _upload_id(query)
                await self._pass(query=f"upload_id={number}")
            case ("GET", "/gradio_api/queue/data"):
                session = session_of((query.get("session_hash") or [""])[0])
                guard.visitors.claim(session, visitor)
                if session not in guard.page._queue.pending_messages_per_session:
                    raise RefusedError("this session has nothing to wait for", 404)
                await self._pass(query=f"session_hash={session}")
            case ("GET", path) if path.startswith(_HEARTBEAT):
                guard.visitors.claim(session_of(path.removeprefix(_HEARTBEAT)), visitor)
                await self._pass(query="")
            case ("GET" | "HEAD", path) if path.startswith(_FILE):
                name = path.removeprefix(_FILE)
                if not (guard.visitors.owns(name, visitor) or guard.given(name)):
                    raise RefusedError(NOT_YOURS, 403)
                await self._pass(query="")
            case _:
                raise RefusedError(_UNKNOWN, 404)

    async def _upload(self, visitor: str, query: dict[str, list[str]]) -> None:
        """Receives files and remembers whose they are."""
        limit = self.guard.upload_bytes
        if self._declared() > limit:
            raise RefusedError("the upload is too large", 413)
        if not "".join(self._all("content-type")).startswith("multipart/form-data"):
            raise RefusedError("an upload must be a form with files", 400)
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await self.receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise RefusedError("the upload is too large", 413)
            return message

        def record(status: int, body: bytes) -> None:
            paths = json.loads(body) if status == 200 else []
            for path in paths:
                self.guard.visitors.uploaded(path, visitor)

        self.headers = [(n, v) for n, v in self.headers if n != b"accept-encoding"]
        number = _upload_id(query) if "upload_id" in query else None
        try:
            await self._pass(
                query="" if number is None else f"upload_id={number}",
                receive=counted,
                inspect=record,
            )
        except RefusedError:
            raise
        except Exception as error:
            log.warning("an upload could not be read: %s", _in_short(error))
            raise RefusedError("the upload could not be read; please try again", 400) from None

    async def _log_in(self) -> None:
        """Checks a password. Wrong ones are answered late, and later each time."""
        body = await self._body(_LOGIN_BYTES)
        client = (self.scope.get("client") or ("",))[0]
        async with self.guard.attempts.turn(client) as attempt:

            async def judge(status: int, _: bytes) -> None:
                await attempt.over(status == 200)

            await self._pass(query="", body=body, settle=judge)

    async def _pass(
        self,
        *,
        query: str,
        body: bytes | None = None,
        receive: Receive | None = None,
        inspect: Callable[[int, bytes], None] | None = None,
        settle: Callable[[int, bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Hands the request to the page.

        Args:
            query: Replaces the query of the request.
            body: Replaces its body.
            receive: Replaces the channel that its body comes from.
            inspect: Is shown status and body of the answer before they are sent.
            settle: The same, awaited.
        """
        headers = self.headers
        source = receive or self.receive
        if body is not None:
            headers = [
                (n, v) for n, v in headers if n not in (b"content-length", b"transfer-encoding")
            ]
            headers.append((b"content-length", str(len(body)).encode()))
            source = _replay(body, self.receive)
        scope = dict(self.scope) | {"query_string": query.encode(), "headers": headers}
        if inspect is None and settle is None:
            await self.guard.app(scope, source, self._send)
            if self.failed:
                raise RuntimeError("no answer")
            return
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)
            if message["type"] != "http.response.body" or message.get("more_body", False):
                return
            status = next(m["status"] for m in held if m["type"] == "http.response.start")
            whole = b"".join(m.get("body", b"") for m in held if m["type"] == "http.response.body")
            if inspect is not None:
                inspect(status, whole)
            if settle is not None:
                await settle(status, whole)
            for waiting in held:
                await self._send(waiting)

        await self.guard.app(scope, source, hold)

    async def _send(self, message: Message) -> None:
        if _is_crash(message):
            self.failed = True  # `answer` sends a sentence and logs one line instead
        if self.failed:
            return
        if message["type"] == "http.response.start":
            self.started = True
            ours = {name for name, _ in _HEADERS}
            headers = [
                (name, value)
                for name, value in message.get("headers", ())
                if not name.lower().startswith(b"access-control-") and name.lower() not in ours
            ]
            headers += _HEADERS
            if self.path == "/" and self.new_cookie is None:
                self._visitor()
            if self.new_cookie is not None:
                headers.append((b"set-cookie", self.new_cookie.encode()))
            message = dict(message) | {"headers": headers}
        elif not message.get("more_body", False):
            self.ended = True
        await self.outer(message)

    async def _refuse(self, sentence: str, status: int) -> None:
        """Answers with one sentence, in the form that Gradio's script shows to the visitor."""
        if self.started:
            if not self.ended:
                await self.outer({"type": "http.response.body", "body": b"", "more_body": False})
            return
        self.failed = False
        body = json.dumps({"detail": sentence, "error": sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _visitor(self) -> str:
        """The visitor who asks; a new one gets a cookie with the answer."""
        known = self.guard.visitors.known(self.cookies)
        if known is None:
            known, self.new_cookie = self.guard.visitors.welcome()
        return known

    async def _body(self, limit: int) -> bytes:
        """The whole body of the request."""
        if self._declared() > limit:
            raise RefusedError("the request is too large", 413)
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                raise RefusedError("the request ended early", 400)
            body += message.get("body", b"")
            if len(body) > limit:
                raise RefusedError("the request is too large", 413)
            if not message.get("more_body", False):
                return bytes(body)

    def _declared(self) -> int:
        """The size that the request says it has."""
        sizes = self._all("content-length")
        return int(sizes[0]) if sizes and re.fullmatch(r"[0-9]{1,18}", sizes[0]) else 0

    def _all(self, name: str) -> list[str]:
        key = name.encode()
        return [value.decode("latin-1") for found, value in self.headers if found.lower() == key]


def _is_crash(message: Message) -> bool:
    """Whether an answer is the one that Starlette makes of an exception."""
    if message["type"] != "http.response.start" or message["status"] != 500:
        return False
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/plain")
        for name, value in message.get("headers", ())
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that brings one body, and after it whatever the client does."""
    waiting = [body]

    async def once() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return once


def _upload_id(query: dict[str, list[str]]) -> str:
    number = (query.get("upload_id") or [""])[0]
    if not _UPLOAD_ID.fullmatch(number):
        raise RefusedError("the upload has no proper number", 400)
    return number


def _in_short(error: BaseException) -> str:
    """An error on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class Attempts:
    """Delays after wrong passwords, for each client address on its own.

    Args:
        first: Seconds after the first wrong password; doubled after each further one.
        most: The longest delay in seconds.
    """

    def __init__(self, first: float = 0.5, most: float = 8.0) -> None:
        self.first, self.most = first, most
        self._clients: OrderedDict[str, Attempt] = OrderedDict()

    def turn(self, client: str) -> Attempt:
        """The client's attempt, one at a time."""
        attempt = self._clients.setdefault(client, Attempt(self))
        self._clients.move_to_end(client)
        if len(self._clients) > 10_000:
            self._clients.popitem(last=False)
        return attempt


class Attempt:
    """The attempts of one client, which wait for each other."""

    def __init__(self, rules: Attempts) -> None:
        self._rules, self._lock = rules, asyncio.Lock()
        self._wrong, self._waiting = 0, 0

    async def __aenter__(self) -> Attempt:
        if self._waiting >= 4:
            raise RefusedError("too many attempts at once; please wait and try again", 429)
        self._waiting += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._waiting -= 1
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._waiting -= 1
        self._lock.release()

    async def over(self, right: bool) -> None:
        """Ends an attempt, after a pause if it was wrong."""
        if right:
            self._wrong = 0
            return
        delay = min(self._rules.first * 2**self._wrong, self._rules.most)
        self._wrong = min(self._wrong + 1, 16)
        await asyncio.sleep(delay)


def make_guard(app: Any, page: Any, host: str, names: Iterable[str], upload_bytes: int) -> Guard:
    """A guard, with Gradio's own check of paths switched on behind it.

    Gradio checks the paths of inputs only after `launch`, which a mounted page never calls.
    """
    page.has_launched = True
    return Guard(app, page, Names(host, names), upload_bytes)
