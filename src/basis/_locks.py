"""One process at a time in a folder, by a lock that a crash does not leave behind.

The lock is the operating system's (`flock`, or `locking` on Windows), which lets go of it when the
process ends in whatever way. Where a file system has no locks, a file with the process's number
stands in for it, which counts only as long as that process lives.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from basis._errors import BasisError

LOCK = ".lock"
"""The lock's file in its folder; it says who holds the lock."""

_held: set[tuple[str, int, int]] = set()
"""The locks that are held, each with the process and the thread that took it."""


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Holds a folder, made when missing, for the length of the block.

    A second process that asks for it meanwhile gets an error that names the first; whoever holds
    it already may ask again. A folder that was made for it and is still empty goes with it.
    """
    path = Path(folder) / LOCK
    mark = (str(path.absolute()), os.getpid(), threading.get_ident())
    if mark in _held:
        yield
        return
    try:
        made = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _take(path)
    except OSError as error:
        raise BasisError(
            f"cannot write {path}: {error.strerror}; name a folder that can be written"
        ) from error
    _held.add(mark)
    try:
        yield
    finally:
        _held.discard(mark)
        # Removed while it is still held: whoever opened it meanwhile sees that it is gone.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(handle)
        if made:
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def _take(path: Path) -> int:
    """The open file of a lock that is now ours."""
    while True:
        # A link may lead to a file of somebody else's, which is not ours to write to.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            free = _lock(handle)
            if free is None:
                free = not _holder_lives(path)
            if not free:
                raise BasisError(
                    f"{path.parent} is in use by {_holder(path) or 'another process'}; wait for "
                    "it, or use another folder"
                )
            if _same_file(handle, path):
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its last holder removed it between our opening and locking


def _lock(handle: int) -> bool | None:
    """Whether the lock could be had; None where there are no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except (ImportError, OSError):
        return None
    return True


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        number, host = path.read_text(encoding="utf-8").split()
        return f"process {int(number)} on {host}"
    return ""


def _holder_lives(path: Path) -> bool:
    """Whether the process that a lock's file names is there; another machine's counts as such."""
    try:
        number, host = path.read_text(encoding="utf-8").split()
        if host != socket.gethostname():
            return True
        if int(number) == os.getpid():
            return False
        os.kill(int(number), 0)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
