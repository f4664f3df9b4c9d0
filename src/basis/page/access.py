"""Who may use the page and how much: limits, host names, visitors, delays after wrong passwords."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from basis.settings import check_settings, setting

_REMEMBERED = 20_000  # sessions, and files
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class Limits:
    """What visitors may ask for."""

    runs: int = setting(2, "separations at the same time; others wait in a queue", at_least=1)
    waiting: int = setting(12, "the longest queue; more are asked to try again later", at_least=1)
    seconds: float = setting(120.0, "the longest time that a separation may take", above=0)
    megabytes: float = setting(8.0, "the largest upload", above=0)
    pixels: int = setting(24_000_000, "the largest uploaded picture", at_least=64, flag=False)
    side: int = setting(64, "longest side of pictures to separate or fill in", at_least=48)
    color_side: int = setting(1024, "longest side of photos to colorize", at_least=32)
    samples: int = setting(8, "the most posterior samples", at_least=2)
    idle: float = setting(
        15.0, "seconds after which a separation stops if its visitor is gone", above=0, flag=False
    )

    def __post_init__(self) -> None:
        check_settings(self)


class RefusedError(Exception):
    """A request that is answered with one sentence and an HTTP status."""

    def __init__(self, sentence: str, status: int = 422) -> None:
        super().__init__(sentence)
        self.sentence, self.status = sentence, status


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this computer only."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class HostNames:
    """The host names that requests may use for this server; all others are refused.

    A page of another site can point its own name at this server (DNS rebinding). The browser then
    sends that name in `Host`, so refusing unknown names stops it.

    Args:
        host: The address that the server listens on. If it stands for all addresses, then the
            address that a connection came in on and the name of this computer are accepted.
        extra: Further names, such as the name of a reverse proxy.
    """

    def __init__(self, host: str = "127.0.0.1", extra: Iterable[str] = ()) -> None:
        address = _address(host)
        self._all = host == "" or (address is not None and address.is_unspecified)
        self._known = {_normal(name) for name in extra}
        if self._all:
            own = socket.gethostname().lower()
            self._known |= {own, f"{own}.local"}
        else:
            self._known.add(_normal(host))

    def accepts(self, name: str, reached: str | None = None) -> bool:
        """Whether a name is one of the server's.

        Args:
            name: A host name or an address, without port.
            reached: The server's own address of the connection.
        """
        name = _normal(name)
        if is_loopback(name) or name in self._known:
            return True
        if not self._all or reached is None or _address(name) is None:
            return False
        return name == _normal(reached)

    def accepts_origin(self, origin: str, host: str, reached: str | None = None) -> bool:
        """Whether a value of `Origin` is this page itself, reached by any of its names."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
            return False
        theirs, ours = split_host(parts.netloc), split_host(host)
        if theirs is None or ours is None:
            return False
        default = {"http": 80, "https": 443}[parts.scheme]
        same_port = (theirs[1] or default) == (ours[1] or default)
        return same_port and self.accepts(theirs[0], reached)


def split_host(value: str) -> tuple[str, int | None] | None:
    """Name and port of a `Host` header, or None if it is malformed."""
    found = _HOST.fullmatch(value)
    if found is None:
        return None
    name, port = found.groups()
    if port is not None and int(port) > 65535:
        return None
    return name, None if port is None else int(port)


def _normal(name: str) -> str:
    """A name in lower case, without brackets and trailing dot; addresses in their usual form."""
    name = name.strip("[]").lower().removesuffix(".")
    return str(_address(name) or name)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Visitors:
    """The browsers that visit the page, their sessions and their files.

    A browser gets a cookie with a random number and its signature, with a key that is new whenever
    the server starts. Scripts cannot read it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self.cookie = f"basis-visitor-{secrets.token_hex(4)}"
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._files: OrderedDict[str, set[str]] = OrderedDict()

    def known(self, cookies: dict[str, str]) -> str | None:
        """The visitor whose cookie a request brings, or None."""
        name, _, signature = cookies.get(self.cookie, "").partition(".")
        valid = signature.isascii() and hmac.compare_digest(signature, self._sign(name))
        return name if valid else None

    def add(self) -> tuple[str, str]:
        """A new visitor and the `Set-Cookie` header that makes the browser remember it."""
        name = secrets.token_hex(16)
        value = f"{name}.{self._sign(name)}"
        return name, f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Lax"

    def claim(self, session: str, visitor: str) -> None:
        """Binds a session to the first visitor that names it; refuses all others."""
        owner = self._sessions.setdefault(session, visitor)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)
        if not hmac.compare_digest(owner, visitor):
            raise RefusedError("this session belongs to another visitor; please reload", 403)

    def of_session(self, session: str | None) -> str | None:
        """The visitor that a session belongs to."""
        return self._sessions.get(session or "")

    def give(self, path: str, visitor: str | None) -> None:
        """Lets a visitor use a file. Files with equal name and content share a path."""
        if visitor is None:
            return
        self._files.setdefault(path, set()).add(visitor)
        self._files.move_to_end(path)
        if len(self._files) > _REMEMBERED:
            self._files.popitem(last=False)

    def owns(self, path: str, visitor: str) -> bool:
        """Whether a path is a regular file that this visitor uploaded or that was made for it.

        The path is looked up as text first. Paths that were never given to a visitor are not
        opened.
        """
        if visitor not in self._files.get(path, ()):
            return False
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except (OSError, ValueError):
            return False

    def _sign(self, name: str) -> str:
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of a request."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


class LoginDelays:
    """Delays after wrong passwords, for each client address on its own.

    Args:
        first: Seconds after the first wrong password; doubled after each further one.
        longest: The longest delay in seconds.
    """

    def __init__(self, first: float = 0.5, longest: float = 8.0) -> None:
        self.first, self.longest = first, longest
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    @asynccontextmanager
    async def attempt(self, address: str) -> AsyncIterator[_Client]:
        """An attempt of a client, one at a time; more than four at once are refused."""
        client = self._clients.setdefault(address, _Client())
        self._clients.move_to_end(address)
        if len(self._clients) > 10_000:
            self._clients.popitem(last=False)
        if client.waiting >= 4:
            raise RefusedError("too many attempts at once; please wait and try again", 429)
        client.waiting += 1
        try:
            async with client.lock:
                yield client
        finally:
            client.waiting -= 1

    async def end(self, client: _Client, right: bool) -> None:
        """Ends an attempt, after a delay if the password was wrong."""
        if right:
            client.wrong = 0
            return
        delay = min(self.first * 2**client.wrong, self.longest)
        client.wrong = min(client.wrong + 1, 16)
        await asyncio.sleep(delay)


class _Client:
    """The attempts of one address: wrong ones so far, and how many are waiting or in progress."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wrong = self.waiting = 0
