"""What every request to the page passes before Gradio sees it."""

from __future__ import annotations

import json
import logging
import re
import urllib.parse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from basis.page.access import (
    HostNames,
    LoginDelays,
    RefusedError,
    Visitors,
    read_cookies,
    split_host,
)
from basis.page.events import NOT_YOURS, Events, parse, session_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Inspect = Callable[[int, bytes], Awaitable[None]]
"""Is passed the status and the body of an answer before they are sent."""

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
_UNKNOWN = "not found"
_PENDING = 4  # events of one visitor that may wait or run at the same time


class Guard:
    """An ASGI application in front of the page.

    It answers requests for the server's own host names only, passes on the routes that the page
    uses and no others, checks the values of every event, binds files and sessions to the browser
    that they belong to, limits the size of requests and the number of events, and delays the
    guessing of passwords.

    Args:
        app: The page, a FastAPI application with Gradio mounted at its root.
        page: The `gradio.Blocks` of the page.
        visitors: The browsers that visit the page, and their files.
        names: The host names that are answered.
        upload_bytes: The largest body of an upload.
    """

    def __init__(
        self, app: Any, page: Any, visitors: Visitors, names: HostNames, upload_bytes: int
    ) -> None:
        self.app, self.page, self.visitors = app, page, visitors
        self.names, self.upload_bytes = names, upload_bytes
        self.events, self.delays = Events(page), LoginDelays()
        self._gradio = app.routes[-1].app  # Gradio's own application, which keeps the logins
        # Gradio checks the paths of inputs only after `launch`, which is never called for a
        # mounted page.
        page.has_launched = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await _Request(self, scope, receive, send).answer()
        else:  # the page uses no websockets
            await send({"type": "websocket.close", "code": 1008})

    def logged_in(self, cookies: dict[str, str]) -> bool:
        """Whether a request comes from a visitor who gave the password, if there is one."""
        if self.page.auth is None:
            return True
        kinds = ("access-token", "access-token-unsecure")
        tokens, suffix = self._gradio.tokens, self._gradio.cookie_id
        return any(cookies.get(f"{kind}-{suffix}") in tokens for kind in kinds)

    def check_pending(self, visitor: str) -> None:
        """Refuses an event of a visitor who has too many in the queue."""
        pending = self.page._queue.pending_event_ids_session
        mine = [len(p) for s, p in list(pending.items()) if self.visitors.of_session(s) == visitor]
        if sum(mine) >= _PENDING:
            raise RefusedError("your earlier requests are not done yet; please wait", 429)


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
        self.values = Headers(raw=self.headers).getlist
        self.cookies = read_cookies("; ".join(self.values("cookie")))
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
            log.error("%s %s failed: %s", self.method, self.path[:80], _short(error))
            await self._refuse("the page could not answer this request", 500)

    def _check_source(self) -> None:
        """Refuses requests that name another server or come from another site's page."""
        reached = (self.scope.get("server") or (None,))[0]
        hosts = self.values("host")
        host = split_host(hosts[0]) if len(hosts) == 1 else None
        if host is None or not self.guard.names.accepts(host[0], reached):
            raise RefusedError("this server does not answer to that host name", 421)
        for origin in self.values("origin"):
            if not self.guard.names.accepts_origin(origin, hosts[0], reached):
                raise RefusedError("requests from other sites are not accepted", 403)
        for forwarded in self.values("x-forwarded-host"):
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
                if queued:
                    guard.check_pending(visitor)
                await self._pass(query="", body=json.dumps(checked).encode())
            case ("POST", "/gradio_api/cancel"):
                checked = guard.events.check_cancel(parse(await self._body(_JSON_BYTES)))
                guard.visitors.claim(checked["session_hash"], visitor)
                await self._pass(query="", body=json.dumps(checked).encode())
            case ("POST", "/gradio_api/reset"):  # which does nothing
                await self._pass(query="", body=b'{"event_id": ""}')
            case ("POST", "/gradio_api/upload"):
                await self._upload(visitor, query)
            case ("GET", "/gradio_api/upload_progress"):
                await self._pass(query=f"upload_id={_upload_id(query)}")
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
                if not guard.visitors.owns(path.removeprefix(_FILE), visitor):
                    raise RefusedError(NOT_YOURS, 403)
                await self._pass(query="")
            case _:
                raise RefusedError(_UNKNOWN, 404)

    async def _upload(self, visitor: str, query: dict[str, list[str]]) -> None:
        """Receives files and remembers whose they are."""
        receive = self._limited(self.guard.upload_bytes)
        if not "".join(self.values("content-type")).startswith("multipart/form-data"):
            raise RefusedError("an upload must be a form with files", 400)

        async def record(status: int, body: bytes) -> None:
            for path in json.loads(body) if status == 200 else []:
                self.guard.visitors.give(path, visitor)

        self.headers = [(n, v) for n, v in self.headers if n != b"accept-encoding"]
        number = f"upload_id={_upload_id(query)}" if "upload_id" in query else ""
        try:
            await self._pass(query=number, receive=receive, inspect=record)
        except RefusedError:
            raise
        except Exception as error:
            log.warning("an upload could not be read: %s", _short(error))
            raise RefusedError("the upload could not be read; please try again", 400) from None

    async def _log_in(self) -> None:
        """Checks a password. Wrong ones are answered late, and later each time."""
        body = await self._body(_LOGIN_BYTES)
        client = (self.scope.get("client") or ("",))[0]
        async with self.guard.delays.attempt(client) as attempt:

            async def end(status: int, _: bytes) -> None:
                await self.guard.delays.end(attempt, status == 200)

            await self._pass(query="", body=body, inspect=end)

    async def _pass(
        self,
        *,
        query: str,
        body: bytes | None = None,
        receive: Receive | None = None,
        inspect: Inspect | None = None,
    ) -> None:
        """Hands the request to the page.

        Args:
            query: Replaces the query of the request.
            body: Replaces its body.
            receive: Replaces the channel that its body comes from.
            inspect: Is passed the answer before it is sent.
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
        if inspect is None:
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
            await inspect(status, whole)
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
        answer = JSONResponse({"detail": sentence, "error": sentence}, status)
        answer.headers["cache-control"] = "no-store"
        await answer(self.scope, self.receive, self._send)

    def _visitor(self) -> str:
        """The visitor who asks; a new one gets a cookie with the answer."""
        known = self.guard.visitors.known(self.cookies)
        if known is None:
            known, self.new_cookie = self.guard.visitors.add()
        return known

    def _limited(self, limit: int) -> Receive:
        """The channel of the request's body; larger bodies than `limit` are refused."""
        declared, received = self.values("content-length"), 0
        if declared and re.fullmatch(r"[0-9]{1,18}", declared[0]) and int(declared[0]) > limit:
            raise RefusedError("the request is too large", 413)

        async def receive() -> Message:
            nonlocal received
            message = await self.receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise RefusedError("the request is too large", 413)
            return message

        return receive

    async def _body(self, limit: int) -> bytes:
        """The whole body of the request."""
        receive, body = self._limited(limit), bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise RefusedError("the request ended early", 400)
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return bytes(body)


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
        raise RefusedError("the upload has no valid number", 400)
    return number


def _short(error: BaseException) -> str:
    """An error on one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
