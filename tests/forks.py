"""Work in a fork of this process, which may crash or run out of resources."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Outcome:
    """How a fork ended, and what it wrote."""

    code: int | None
    signal: int
    out: str
    err: str

    def complaints(self) -> list[str]:
        """What a command must never do, in words; empty if it behaved."""
        found = [f"signal {self.signal}"] if self.signal else []
        found += ["traceback"] if "Traceback" in self.err else []
        odd = [c for c in self.out + self.err if not c.isprintable() and c not in "\n\r"]
        return found + (["control characters"] if odd else [])


def run_forked(
    work: Callable[[], int], folder: Path, *, seconds: float = 60, encoding: str = "utf-8"
) -> Outcome:
    """Does `work` in a fork, with its output in files of `folder`; killed after these seconds.

    Args:
        work: Returns the exit code.
        folder: The working folder.
        seconds: Processor time that it may take.
        encoding: That of stdout and stderr.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, folder, encoding)
    end = time.monotonic() + 10 * seconds
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(done[1])
    out, err = (
        (folder / name).read_bytes().decode("utf-8", "surrogateescape")
        for name in ("stdout", "stderr")
    )
    return Outcome(None if code < 0 else code, max(0, -code), out, err)


def _child(work: Callable[[], int], folder: Path, encoding: str) -> None:
    code = 1
    try:
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="strict", closefd=False)  # noqa: SIM115
        try:
            code = work()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        code = 1
    finally:
        os._exit(code)
