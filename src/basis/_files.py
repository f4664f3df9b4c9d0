"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from basis._errors import BasisError


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; moves it into place when the block ends well.

    What was written is on the disk before it gets its name, so that not even a power cut leaves a
    file that is there but empty.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    except OSError as error:
        raise BasisError(
            f"cannot write {path}: {error.strerror}; name a folder that can be written"
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() or os.name != "nt" else os.O_RDWR)
    except OSError:
        return  # a folder on Windows cannot be opened, and needs not be
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise  # a disk that is full may say so only now
    finally:
        os.close(handle)


def write_text(path: str | Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
