"""Who uploaded which file: browsers are told apart by a signed cookie."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections import OrderedDict

from basis.page.inputs import RefusedError

_MOST = 20_000  # sessions, and uploaded files, that are remembered


class Visitors:
    """The browsers that visit the page, their sessions and their uploads.

    A browser gets a cookie with a random number and its signature, under a key that is new whenever
    the server starts. Scripts cannot read it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self.cookie = f"basis-visitor-{secrets.token_hex(4)}"
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._uploads: OrderedDict[str, set[str]] = OrderedDict()

    def known(self, cookies: dict[str, str]) -> str | None:
        """The visitor whose cookie a request brings, or None."""
        name, _, signature = cookies.get(self.cookie, "").partition(".")
        good = signature.isascii() and hmac.compare_digest(signature, self._sign(name))
        return name if good else None

    def welcome(self) -> tuple[str, str]:
        """A new visitor and the `Set-Cookie` header that makes the browser remember it."""
        name = secrets.token_hex(16)
        value = f"{name}.{self._sign(name)}"
        return name, f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Lax"

    def claim(self, session: str, visitor: str) -> None:
        """Binds a session to the first visitor that names it; refuses all others."""
        owner = self._sessions.setdefault(session, visitor)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MOST:
            self._sessions.popitem(last=False)
        if not hmac.compare_digest(owner, visitor):
            raise RefusedError("this session belongs to another visitor; please reload", 403)

    def uploaded(self, path: str, visitor: str) -> None:
        """Records an upload. Files with equal name and content share a path."""
        owners = self._uploads.setdefault(path, set())
        owners.add(visitor)
        self._uploads.move_to_end(path)
        if len(self._uploads) > _MOST:
            self._uploads.popitem(last=False)

    def owns(self, path: str, visitor: str) -> bool:
        """Whether a path is a plain file that this visitor uploaded.

        The path is looked up as text first. Paths that no upload was given are never opened.
        """
        return visitor in self._uploads.get(path, ()) and is_plain_file(path)

    def _sign(self, name: str) -> str:
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()


def is_plain_file(path: str) -> bool:
    """Whether a path leads to a regular file without following a link to it."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of a request."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}
