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
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from basis.errors import BasisError, one_line, printable

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


STORE = "store.json"
"""What a finished job says of its results, in their folder."""


class RunFolder:
    """Collects the names of a run's files, and ends with their list in the run's record.

    Only files that the earlier record names are removed, and only once everything new is written:
    a run that fails leaves the folder as it was.

    Args:
        folder: The folder; it is made with the first file.
        record: The name of the record in it.
    """

    def __init__(self, folder: str | Path, record: str = "run.json") -> None:
        self.folder, self.record = Path(folder), record
        self.names: set[str] = set()  # a list would be searched through for each of thousands

    def path(self, name: str) -> Path:
        """Where a file of this run goes."""
        self.names.add(name)
        return self.folder / name

    def finish(self, entries: Mapping[str, Any]) -> Path:
        """Writes the record with the list of files, then removes what an earlier run left over."""
        earlier = self.earlier()
        path = self.folder / self.record
        write_json(path, {**entries, "files": sorted(self.names)})
        remove_files(self.folder, earlier - {*self.names, self.record})
        return path

    def earlier(self) -> set[str]:
        """The files that an earlier run's record names."""
        return _listed(self.folder / self.record)

    def refuse_job(self) -> None:
        """Refuses a folder with the store of a job, whose files a run of its own would mix with."""
        if (self.folder / STORE).is_file():
            raise BasisError(
                f"{self.folder} holds the results of a job ({STORE}); give another --out"
            )


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of an earlier run, but none that is read now."""
    for name in names:
        old = folder / name
        if old.is_file() and not is_input(old):
            old.unlink()


def write_json(path: str | Path, record: Mapping[str, Any]) -> None:
    """Writes a record for scripts to read."""
    write_text(path, json.dumps(_strict(dict(record)), indent=2) + "\n")


def _listed(record: Path) -> set[str]:
    """The files that a record names, those of records that had no list from their mixtures."""
    try:
        entries = read_json(record, "a record")
        if "files" in entries:
            names = {str(name) for name in entries["files"]}
        else:
            k = int(entries["settings"]["mixing"]["sources"])
            rows = [row["name"] for row in entries["mixtures"]]
            names = {f"{name}-source{i + 1}.png" for name in rows for i in range(k)}
            names.add("states.png")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()  # no record, or none of ours
    return {name for name in names if name and Path(name).name == name}


def _strict(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        raise BasisError(
            f"there is no file {printable(path)} ({_reason_reading(error)})"
        ) from error
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


def _reason_reading(error: Exception) -> str:
    return getattr(error, "strerror", None) or one_line(error)
