"""Files of others, looked at before they are read; whatever a reader raises becomes one line."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._texts import one_line, printable

__all__ = ["check_fits_memory", "check_regular", "read_json", "read_text", "reading"]

TEXT = 64 << 20
"""Bytes of the largest text that is read: a card has thousands, a log of a long run a million."""

_DEEPEST = 64


@contextmanager
def reading(path: str | Path, what: str, advice: str = "") -> Iterator[None]:
    """Turns whatever reading a file raises into one line that names it.

    Args:
        path: The file.
        what: What it was to be, as in "a NumPy file".
        advice: What else to say, as in "fetch it again".

    Decoders of broken bytes raise anything; only what says that memory ran out, or that the user
    wants to stop, passes through.
    """
    try:
        yield
    except (BasisError, MemoryError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error, 200)}" if str(error) else one_line(error)
        also = f"; {advice}" if advice else ""
        raise BasisError(f"{path} cannot be read as {what} ({why}){also}") from error


def check_regular(path: str | Path) -> None:
    """Refuses what is no plain file: opening a pipe waits for ever, and a device never ends."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise BasisError(f"there is no file {printable(path)} ({_reason(error)})") from error
    if stat.S_ISDIR(mode):
        raise BasisError(f"{path} is a folder; give files")
    if not stat.S_ISREG(mode):
        raise BasisError(f"{path} is no regular file (a pipe, a socket or a device)")


def read_text(path: str | Path, most: int = TEXT) -> str:
    """The text of a regular file of UTF-8 that is not larger than `most` bytes."""
    check_regular(path)
    size = os.path.getsize(path)
    if size > most:
        raise BasisError(f"{path} has {size} bytes; at most {most} are read")
    with reading(path, "text in UTF-8"):
        return Path(path).read_text(encoding="utf-8")


def read_json(path: str | Path, what: str) -> Any:
    """What a JSON file holds; nesting beyond what any of ours has is refused."""
    return parse_json(read_text(path), path, what)


def parse_json(text: str, path: str | Path, what: str) -> Any:
    """What a JSON text holds; `path` and `what` are for errors."""
    with reading(path, what):
        value = json.loads(text)
        if _depth(value) > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    return value


def check_fits_memory(size: int, path: str | Path) -> None:
    """Refuses to unfold more bytes than there is memory for."""
    left = memory_left()
    if left is not None and size > left:
        raise BasisError(
            f"{path} unfolds to {size / 1e9:.1f} GB, and {left / 1e9:.1f} GB of memory are left; "
            "divide it into smaller files"
        )


def memory_left() -> int | None:
    """Bytes of memory that can still be used; None where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _depth(value: Any) -> int:
    """How deep objects and lists are nested, without recursion of our own."""
    depth, level = 0, [value]
    while level:
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        depth += 1
    return depth


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or one_line(error)
