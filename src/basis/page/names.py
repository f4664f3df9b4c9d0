"""The host names under which the page answers."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this computer alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether a server that listens on `host` listens on every address of this computer."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


class Names:
    """The names that requests may use for this server; all others are refused.

    A page of another site can point its own name at this server (DNS rebinding). The browser then
    sends that name in `Host`, so refusing unknown names stops it.

    Args:
        host: The address that the server listens on. If it stands for all addresses, then the
            address that a connection came in on and the name of this computer are accepted.
        extra: Further names, such as the name of a reverse proxy.
    """

    def __init__(self, host: str = "127.0.0.1", extra: Iterable[str] = ()) -> None:
        self._every = is_wildcard(host)
        self._known = {_plain(name) for name in extra}
        if self._every:
            own = socket.gethostname().lower()
            self._known |= {own, f"{own}.local"}
        else:
            self._known.add(_plain(host))

    def accepts(self, name: str, reached: str | None = None) -> bool:
        """Whether a name is one of the server's.

        Args:
            name: A host name or an address, without port.
            reached: The server's own address of the connection.
        """
        name = _plain(name)
        if is_loopback(name) or name in self._known:
            return True
        return self._every and reached is not None and name == _plain(reached) and _is_address(name)

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


def _plain(name: str) -> str:
    """A name in lower case, without brackets and trailing dot; addresses in their usual form."""
    name = name.strip("[]").lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
