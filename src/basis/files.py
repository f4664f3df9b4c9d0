"""Files: written whole or not at all, locked while in use, inspected before they are read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from basis.errors import BasisError, one_line, printable

LOCK = ".lock"
"""The lock file of a folder in use; it names the process that holds it."""
STORE = "store.json"
"""The record of a finished job, in the folder of its results."""
LARGEST_TEXT = 64 << 20
"""Bytes of the largest text file that is read: a card has thousands, a long log a million."""

_DEEPEST_JSON = 64
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/(\d{1,9}))|/proc/self/fd/(\d{1,9})")
_STANDARD = {"stdout": 1, "stderr": 2}
_inputs: set[tuple[int, int]] = set()  # device and inode of each protected input


def as_folder(value: Any, name: str = "out") -> Path:
    """The path of a folder that an argument names; raises for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise BasisError(f"give the folder, such as {name}='runs/mine', not {value!r:.60}")
    return Path(value)


# Writing.


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder; moves it to `path` if the block succeeds.

    The data is on disk before the file gets its name, so that not even a power cut leaves an empty
    file. Devices and pipes are never replaced: the bytes are written to them. Inputs protected by
    `protected` are refused. A full disk is a one-line error that names the file.
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
        raise _cannot_write(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if through:
            _copy_to(temporary, path)
        else:
            os.chmod(temporary, 0o666 & ~_umask())
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except Exception as error:
        # safetensors has an error of its own; it is recognized without importing safetensors.
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        raise BasisError(f"cannot write {path}: {_write_failure(error, path)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes text as UTF-8; file names that are not valid UTF-8 are escaped."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, record: Mapping[str, Any]) -> None:
    """Writes a record as JSON; NaN and infinities become null."""
    write_text(path, json.dumps(_strict(dict(record)), indent=2) + "\n")


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on disk."""
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() or os.name != "nt" else os.O_RDWR)
    except OSError:
        return  # a folder on Windows cannot be opened
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise  # a full disk may be reported only now
    finally:
        os.close(handle)


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Checks before writing.


@contextmanager
def protected(paths: Iterable[str | Path]) -> Iterator[None]:
    """Within the block, no file that exists under one of these paths can be replaced."""
    before = set(_inputs)
    _inputs.update(found for path in paths if (found := _file_id(path)) is not None)
    try:
        yield
    finally:
        _inputs.clear()
        _inputs.update(before)


def check_replaceable(path: str | Path) -> None:
    """Refuses an output that is an input or a folder; call it before long work."""
    if _file_id(path) in _inputs:
        raise BasisError(
            f"{path} is one of the images or files that are read; give the output another name"
        )
    if os.path.isdir(path):
        raise BasisError(f"cannot write {path}: it is a folder")


def check_no_link(path: str | Path) -> None:
    """Refuses a symbolic link as a folder of outputs: files behind it would be changed."""
    if os.path.islink(path):
        raise BasisError(f"{path} is a symbolic link; remove it, or name another output folder")


def check_disk_space(path: str | Path, size: int) -> None:
    """Refuses to start long work if its results would not fit on the disk.

    Args:
        path: A file or folder that results are written to; it need not exist.
        size: The bytes that will be written, roughly.
    """
    folder = next(p for p in (Path(path), *Path(path).absolute().parents) if os.path.isdir(p))
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return
    if free < size:
        raise BasisError(
            f"{path} will need about {_amount(size)} and {_amount(free)} are free; "
            "free some space or name another folder"
        )


# Folders of results.


class RunFolder:
    """The files of one run in a folder, listed in a record that is written last.

    Files of an earlier run are removed only if its record lists them, and only after everything new
    is written: a run that fails leaves the folder as it was.

    Args:
        folder: The folder; it is made with the first file.
        record: The name of the record.
    """

    def __init__(self, folder: str | Path, record: str = "run.json") -> None:
        self.folder, self.record = Path(folder), record
        self.names: set[str] = set()

    def path(self, name: str) -> Path:
        """The path of a file of this run."""
        self.names.add(name)
        return self.folder / name

    def finish(self, entries: Mapping[str, Any]) -> Path:
        """Writes the record with the list of files, then removes files of the earlier run."""
        earlier = self.earlier()
        path = self.folder / self.record
        write_json(path, {**entries, "files": sorted(self.names)})
        remove_files(self.folder, earlier - {*self.names, self.record})
        return path

    def earlier(self) -> set[str]:
        """The files that the record of an earlier run lists."""
        try:
            names = {
                str(name) for name in read_json(self.folder / self.record, "a record")["files"]
            }
        except (BasisError, KeyError, TypeError):
            return set()  # no record, or a record of something else
        return {name for name in names if name and Path(name).name == name}

    def refuse_job(self) -> None:
        """Refuses a folder with the results of a job."""
        if (self.folder / STORE).is_file():
            raise BasisError(
                f"{self.folder} holds the results of a job ({STORE}); give another --out"
            )


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of an earlier run, except those that are inputs now."""
    for name in names:
        old = folder / name
        if old.is_file() and _file_id(old) not in _inputs:
            old.unlink()


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Locks a folder, made if missing, for the duration of the block.

    Another process or thread gets an error that names the holder; the holder itself may lock the
    folder again. A folder that was made for the lock and is still empty is removed.
    """
    from filelock import FileLock, Timeout  # slow to import, and rarely needed

    path = Path(folder).absolute() / LOCK
    try:
        made = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0, is_singleton=True)
        lock.acquire()
    except Timeout as error:
        holder = "another process"
        with contextlib.suppress(OSError, ValueError):
            number, host = path.read_text(encoding="utf-8").split()
            holder = f"process {int(number)} on {printable(host)}"
        raise BasisError(
            f"{folder} is in use by {holder}; wait for it, or use another folder"
        ) from error
    except OSError as error:
        raise _cannot_write(path, error) from error
    outermost = lock.lock_counter == 1
    if outermost:
        with contextlib.suppress(OSError):
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
    try:
        yield
    finally:
        if outermost:  # removed while held: the next process makes a new file
            with contextlib.suppress(OSError):
                path.unlink()
        lock.release()
        if outermost and made:
            with contextlib.suppress(OSError):
                path.parent.rmdir()


# Reading.


@contextmanager
def reading(path: str | Path, what: str, advice: str = "") -> Iterator[None]:
    """Turns any exception of a decoder into one line that names the file.

    Args:
        path: The file.
        what: What the file should be, as in "a NumPy file".
        advice: What to do about it, as in "fetch it again".
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
    """Refuses what is not a regular file: opening a pipe waits forever, a device never ends."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise BasisError(f"there is no file {printable(path)} ({_reason(error)})") from error
    if stat.S_ISDIR(mode):
        raise BasisError(f"{path} is a folder; give files")
    if not stat.S_ISREG(mode):
        raise BasisError(f"{path} is not a regular file (a pipe, a socket or a device)")


def read_text(path: str | Path, largest: int = LARGEST_TEXT) -> str:
    """The text of a regular UTF-8 file of at most `largest` bytes."""
    check_regular(path)
    size = os.path.getsize(path)
    if size > largest:
        raise BasisError(f"{path} has {size} bytes; at most {largest} are read")
    with reading(path, "text in UTF-8"):
        return Path(path).read_text(encoding="utf-8")


def read_json(path: str | Path, what: str) -> Any:
    """The contents of a JSON file; deep nesting is refused."""
    return parse_json(read_text(path), path, what)


def parse_json(text: str, path: str | Path, what: str) -> Any:
    """The contents of a JSON text; `path` and `what` are for errors."""
    with reading(path, what):
        value = json.loads(text)
        if _depth(value) > _DEEPEST_JSON:
            raise ValueError(f"it is nested more than {_DEEPEST_JSON} levels deep")
    return value


def check_fits_memory(size: int, path: str | Path) -> None:
    """Refuses to decompress more bytes than there is memory for."""
    left = memory_left()
    if left is not None and size > left:
        raise BasisError(
            f"{path} decompresses to {_amount(size)}, and {_amount(left)} of memory are left; "
            "divide it into smaller files"
        )


def memory_left() -> int | None:
    """Bytes of memory that can still be used; None where the system does not say."""
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


def data_root(root: str | Path | None = None) -> Path:
    """The folder of data sets: `root`, else `$BASIS_DATA`, else `~/.cache/basis`."""
    if root is None:
        root = os.environ.get("BASIS_DATA") or "~/.cache/basis"
    return Path(os.path.expanduser(root))


def find_path(source: str | Path, root: str | Path | None = None) -> Path | None:
    """An existing file or folder: as given, else below the data root; None if neither exists."""
    path = Path(os.path.expanduser(source))
    for candidate in (path, data_root(root) / path):
        # os.path.exists is False where Path.exists raises (a name too long, a closed folder).
        if os.path.exists(candidate):
            return candidate
    return None


def _file_id(path: str | Path) -> tuple[int, int] | None:
    """The device and inode of a regular file, under any name; None for anything else."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open descriptor."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    # /dev/stdout may be a regular file, and must not be replaced by another.
    return not path.is_file() or path.absolute().parts[1:2] in (("dev",), ("proc",))


def _copy_to(temporary: Path, path: Path) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # keeps what was printed before in order
    number = _DESCRIPTOR.fullmatch(str(path))
    if number is not None:  # opening the path would start at the beginning of the file
        handle = os.dup(_STANDARD.get(number[1]) or int(number[2] or number[3]))
    else:
        # Opened without waiting for a reader, which a pipe may never have.
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        os.set_blocking(handle, True)
    with open(handle, "wb") as target, open(temporary, "rb") as file:
        shutil.copyfileobj(file, target)


def _cannot_write(path: Path, error: Exception) -> BasisError:
    return BasisError(f"cannot write {path}: {_reason(error)}; name a folder that can be written")


def _write_failure(error: Exception, path: Path) -> str:
    if path.parent.is_dir() and shutil.disk_usage(path.parent).free < 4096:
        # NumPy and Pillow do not say so: "784 requested and 0 written", "encoder error -2".
        return "no space left on the device; what was there before is unchanged"
    return _reason(error)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or one_line(error)


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _strict(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _depth(value: Any) -> int:
    """How deep objects and lists are nested, without recursion."""
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
