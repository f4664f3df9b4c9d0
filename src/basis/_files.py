"""Files are written whole or not at all, and never over what was read."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from basis._errors import BasisError
from basis._texts import one_line

_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/(\d{1,9}))|/proc/self/fd/(\d{1,9})")
_STANDARD = {"stdout": 1, "stderr": 2}

_inputs: set[tuple[int, int]] = set()
"""Device and number of every file that this process reads for its user."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; moves it into place when the block ends well.

    What was written is on the disk before it gets its name, so that not even a power cut leaves a
    file that is there but empty.
    What is no regular file (a device, a pipe) is never replaced: the bytes are written through it.
    A file that is protected as an input is refused. A full disk is one line that names the file,
    whatever the library that met it calls it.
    """
    path = Path(path)
    check_replaceable(path)
    through = _is_special(path)
    try:
        if not through:
            path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=None if through else path.parent,
            prefix=f".{path.stem[:32]}-",
            suffix=path.suffix,
        )
    except (OSError, ValueError) as error:
        raise BasisError(
            f"cannot write {path}: {_reason(error)}; name a folder that can be written"
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if through:
            _write_through(temporary, path)
        else:
            os.chmod(temporary, 0o666 & ~_umask())
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except Exception as error:
        if not _is_write_error(error):
            raise
        raise BasisError(f"cannot write {path}: {_reason(error, path)}") from error
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
    """Writes text as UTF-8; bytes of file names that are no UTF-8 are written as escapes."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def protected(paths: Iterable[str | Path]) -> Iterator[None]:
    """Within the block no file that is there under one of these paths is replaced."""
    found = {identity for path in paths if (identity := _identity(path)) is not None}
    before = set(_inputs)
    _inputs.update(found)
    try:
        yield
    finally:
        _inputs.clear()
        _inputs.update(before)


def check_replaceable(path: str | Path) -> None:
    """Refuses a place for an output that is one of the inputs; ask before long work."""
    if is_input(path):
        raise BasisError(
            f"{path} is one of the images or files that are read; give the output another name"
        )
    if os.path.isdir(path):
        raise BasisError(f"cannot write {path}: it is a folder")


def check_no_link(path: str | Path) -> None:
    """Refuses a symbolic link in place of a folder inside an output folder.

    Files written through it, and files removed through it, would lie outside of the output.
    """
    if os.path.islink(path):
        raise BasisError(f"{path} is a symbolic link; remove it, or name another output folder")


def is_input(path: str | Path) -> bool:
    """Whether a path names a file that is protected as an input."""
    return _identity(path) in _inputs


def check_room(path: str | Path, size: int) -> None:
    """Refuses to begin long work whose results would not fit on the disk.

    Args:
        path: A file or folder that results are written to; it need not be there yet.
        size: The bytes that will be written, roughly.
    """
    for place in (Path(path), *Path(path).absolute().parents):
        if os.path.isdir(place):
            try:
                free = shutil.disk_usage(place).free
            except OSError:
                return
            if free < size:
                raise BasisError(
                    f"{path} will need about {_amount(size)} and {_amount(free)} are free there; "
                    "make room or name another folder"
                )
            return


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(path: str | Path) -> tuple[int, int] | None:
    """What a regular file is told by, under whatever name; None for anything else."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _is_special(path: Path) -> bool:
    """Whether a path is no place for a regular file: a device, a pipe, an open descriptor."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    # /dev/stdout may well stand for a regular file, and must not be replaced by one.
    return not path.is_file() or path.absolute().parts[1:2] in (("dev",), ("proc",))


def _write_through(temporary: Path, path: Path) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what was printed before comes before
    number = _DESCRIPTOR.fullmatch(str(path))
    if number is not None:  # opened anew, a file would be written from its beginning again
        handle = os.dup(_STANDARD.get(number[1]) or int(number[2] or number[3]))
    else:
        # A pipe that nobody reads would be waited for; so it is opened without waiting, once.
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        os.set_blocking(handle, True)
    with open(handle, "wb") as target, open(temporary, "rb") as file:
        shutil.copyfileobj(file, target)


def _is_write_error(error: Exception) -> bool:
    # By its name, because not everybody who writes a file has safetensors loaded.
    return isinstance(error, OSError) or type(error).__name__ == "SafetensorError"


def _reason(error: Exception, path: Path | None = None) -> str:
    reason = getattr(error, "strerror", None) or one_line(error)
    if path is not None and path.parent.is_dir() and shutil.disk_usage(path.parent).free < 4096:
        # numpy and Pillow do not say so: "784 requested and 0 written", "encoder error -2".
        return "no space left on the device; what was there before is unchanged"
    return reason


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
