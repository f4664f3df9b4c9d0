"""Work in a fork of this process that may crash, hang or write where it must not."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRESS = re.compile(r"training: |going on from |[\d,]+ of [\d,]+ images|basis \w+: warning: ")
WRITES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod",
          "os.link", "os.symlink", "shutil.rmtree", "shutil.move", "os.chown")  # fmt: skip
LINKS = ("os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree")
"""Those that do not follow a link under the name that they are given."""
FOLDERS = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.rename": 2, "os.link": 2}
"""Where among the arguments of an event the open folders are that its names lie in."""


@dataclass
class Outcome:
    """What became of a case."""

    code: int | None = None
    signal: int = 0
    hung: bool = False
    seconds: float = 0.0
    out: str = ""
    err: str = ""
    touched: list[str] = field(default_factory=list)

    def told(self) -> list[str]:
        """The lines on stderr but those of progress."""
        return [line for line in self.err.splitlines() if not PROGRESS.match(line)]

    def complaints(self) -> list[str]:
        """What is wrong with it, in words; nothing where it is as promised."""
        found = []
        if self.hung:
            found.append("hang")
        elif self.signal:
            found.append(f"crash by signal {self.signal}")
        elif "Traceback (most recent call last)" in self.err or "Exception ignored" in self.err:
            found.append("traceback")
        elif self.code == 70:
            found.append("fault of the program")
        elif self.code not in (0, 2):
            found.append(f"exit code {self.code}")
        elif self.code == 2 and len(self.told()) != 1:
            found.append(f"{len(self.told())} lines on stderr")
        if any(not c.isprintable() and c not in "\n\r" for c in self.out + self.err):
            found.append("control characters")
        if self.touched:
            found.append(f"touched {self.touched[0]}")
        return found


def run_forked(
    work: Callable[[], int],
    folder: Path,
    *,
    seconds: float = 10.0,
    allowed: Sequence[Path] = (),
    watched: Sequence[Path] = (),
    memory: int = 0,
    encoding: str = "utf-8",
) -> Outcome:
    """Does `work` in a fork, with its output in files of `folder`, for so many seconds at most.

    Args:
        work: What is done; returns the exit code.
        folder: The working folder; its files `stdout` and `stderr` are written.
        seconds: After so many it is killed.
        allowed: Folders in which files may be written; none: anywhere.
        watched: Folders whose files must stay as they are.
        memory: Bytes of address space beyond what there is now; 0 for any.
        encoding: That of stdout and stderr.
    """
    before = snapshot(watched)
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, folder, allowed, memory, encoding)
    outcome = Outcome()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        outcome.seconds = time.monotonic() - started
        if done:
            break
        # Time that others take from the processor is not the case's own.
        late = outcome.seconds > seconds and busy(child) > seconds
        if late or outcome.seconds > 12 * seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            outcome.hung, status = True, 0
            break
        time.sleep(0.002 if outcome.seconds < 0.2 else 0.02)
    if not outcome.hung:
        outcome.code = os.waitstatus_to_exitcode(status)
        if outcome.code < 0:
            outcome.signal, outcome.code = -outcome.code, None
    for name in ("stdout", "stderr"):
        text = (folder / name).read_bytes().decode("utf-8", "surrogateescape")
        setattr(outcome, name[3:], text)
    log = folder / "writes"
    written = json.loads(log.read_text()) if log.exists() else []
    outcome.touched = written + [
        p for p, told in snapshot(watched).items() if before.get(p) != told
    ]
    outcome.touched += [p for p in before if not os.path.lexists(p)]
    return outcome


def busy(child: int, running: bool = False) -> float:
    """Seconds of processor time that a child has used; infinite where it only waits.

    Args:
        child: Its process.
        running: Whether to take the time of one that waits as well.
    """

    def stat(path: Path) -> list[str]:
        return path.read_text().rsplit(")", 1)[1].split()

    try:
        parts = stat(Path(f"/proc/{child}/stat"))
        threads = [stat(path) for path in Path(f"/proc/{child}/task").glob("*/stat")]
    except OSError:
        return float("inf")
    if not running and all(thread[0] == "S" for thread in threads):
        return float("inf")  # asleep: it waits for something that does not come
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _child(
    work: Callable[[], int], folder: Path, allowed: Sequence[Path], memory: int, encoding: str
) -> None:
    code = 1
    try:
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
        if memory:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        written: list[str] = []
        if allowed:
            places = [os.path.realpath(place) for place in (*allowed, tempfile.gettempdir())]
            forbidden = [os.path.realpath(folder)]  # which may lie below the temporary folder
            sys.addaudithook(lambda event, args: note(event, args, places, forbidden, written))
        try:
            code = work()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        if written:
            Path(folder, "writes").write_text(json.dumps(sorted(set(written))))
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        code = 1
    finally:
        os._exit(code)


def note(
    event: str, args: tuple, places: list[str], forbidden: list[str], written: list[str]
) -> None:
    """Notes files that are written where none may be."""
    if event not in WRITES or not args or not isinstance(args[0], str | bytes | os.PathLike):
        return
    if event == "open":
        flags = args[2] if isinstance(args[2], int) else 0
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            return
    names = args[:2] if event in ("os.rename", "os.link", "shutil.move") else args[:1]
    folders = args[FOLDERS.get(event, len(args)) :]
    for place, name in enumerate(names):
        # Removing a tree names files by the open folder that they lie in.
        opened = folders[place] if place < len(folders) else -1
        top = os.readlink(f"/proc/self/fd/{opened}") if opened >= 0 else os.getcwd()
        path = os.path.join(top, os.fsdecode(name))
        if event in LINKS:  # it is the link itself that is replaced or removed
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        else:
            path = os.path.realpath(path)
        inside = any(path == p or path.startswith(p + os.sep) for p in places)
        below = any(path.startswith(p + os.sep) for p in forbidden)
        own = any(path == p or path.startswith(p + os.sep) for p in places[:-1])
        if (not inside or (below and not own)) and not path.startswith(("/dev/", "/proc/")):
            written.append(f"{event} {path!r}")


def snapshot(folders: Sequence[Path]) -> dict[str, tuple]:
    found = {}
    for top in folders:
        for here, names, files in os.walk(top):
            for name in (*files, *names):
                path = os.path.join(here, name)
                told = os.lstat(path)
                found[path] = (told.st_ino, told.st_size, told.st_mtime_ns, told.st_mode)
    return found
