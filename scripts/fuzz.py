"""Bad input at volume: seeded cases over every reader and command, each in a process of its own.

    python scripts/fuzz.py --cases 10000 --seed 0

A case is a command line and the files it names, damaged or crafted. It may succeed (exit code 0) or
be refused (code 2, one printable line on stderr). Anything else is a finding: a traceback or a
fault of the program (code 70), several lines or control characters, a crash, more than --seconds of
time, or a file touched outside of the case's output folder. Findings are printed as they come, with
the seed of their case (`--only SEED` runs it alone); the last line has the counts. The exit code is
1 where there were findings.

Cases run in forks of one process that has everything loaded, a few tens of milliseconds each.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_cases import COMMANDS, Case, make_case, make_world  # noqa: E402

WRITES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod",
          "os.link", "os.symlink", "shutil.rmtree", "shutil.move", "os.chown")  # fmt: skip


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

    def complaints(self) -> list[str]:
        """What is wrong with it, in words; nothing where it is as promised."""
        found = []
        if self.hung:
            found.append("hang")
        elif self.signal:
            found.append(f"crash by signal {self.signal}")
        elif "Traceback (most recent call last)" in self.err or "Exception ignored" in self.err:
            found.append("traceback")
        elif self.code == 70 or ": unexpected " in self.err:
            found.append("fault of the program")
        elif self.code not in (0, 2):
            found.append(f"exit code {self.code}")
        elif self.code == 2 and len(self.err.splitlines()) != 1:
            found.append(f"{len(self.err.splitlines())} lines on stderr")
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
    before = _snapshot(watched)
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, folder, allowed, memory, encoding)
    outcome = Outcome()
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        outcome.seconds = time.monotonic() - started
        if done:
            break
        # Time that others take from the processor is not the case's own.
        if outcome.seconds > seconds and _busy(child) > seconds or outcome.seconds > 12 * seconds:
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
        p for p, told in _snapshot(watched).items() if before.get(p) != told
    ]
    outcome.touched += [p for p in before if not os.path.lexists(p)]
    return outcome


def _busy(child: int) -> float:
    """Seconds of processor time that a child has used, or its time where it only waits."""
    try:
        parts = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return float("inf")
    if parts[0] == "S":  # asleep: it waits for something that does not come
        return float("inf")
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
        sys.stdin = open(0, closefd=False)
        sys.stdout = open(1, "w", encoding=encoding, errors="strict", closefd=False)
        sys.stderr = open(2, "w", encoding=encoding, errors="strict", closefd=False)
        if memory:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        written: list[str] = []
        if allowed:
            places = [os.path.realpath(place) for place in (*allowed, tempfile.gettempdir())]
            forbidden = [os.path.realpath(folder)]  # which may lie below the temporary folder
            sys.addaudithook(lambda event, args: _note(event, args, places, forbidden, written))
        try:
            code = work()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        if written:
            Path(folder, "writes").write_text(json.dumps(sorted(set(written))))
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        code = 1
    finally:
        os._exit(code)


def _note(
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
    for name in names:
        path = os.path.realpath(os.fsdecode(name))
        inside = any(path == p or path.startswith(p + os.sep) for p in places)
        below = any(path.startswith(p + os.sep) for p in forbidden)
        own = any(path == p or path.startswith(p + os.sep) for p in places[:-1])
        if (not inside or (below and not own)) and not path.startswith(("/dev/", "/proc/")):
            written.append(f"{event} {path!r}")


def _snapshot(folders: Sequence[Path]) -> dict[str, tuple]:
    found = {}
    for top in folders:
        for here, names, files in os.walk(top):
            for name in (*files, *names):
                path = os.path.join(here, name)
                told = os.lstat(path)
                found[path] = (told.st_ino, told.st_size, told.st_mtime_ns, told.st_mode)
    return found


def run_case(case: Case, folder: Path, world: Path, seconds: float) -> Outcome:
    """Runs a case whose files are in place."""
    from basis.cli import main

    outcome = run_forked(
        lambda: main(case.words),
        folder,
        seconds=seconds,
        allowed=[folder / "out"],
        watched=[world, folder / "in"],
        memory=6 << 30,
    )
    return outcome


def fuzz(
    cases: int,
    seed: int,
    *,
    seconds: float = 10.0,
    only: int | None = None,
    commands: Sequence[str] = (),
    limit: float = float("inf"),
    verbose: bool = False,
    report: Callable[[str], None] = print,
) -> tuple[collections.Counter, list[str]]:
    """Runs so many cases; returns the counts and a line for each finding.

    Args:
        cases: How many.
        seed: Of the first case; the following ones have the following seeds.
        seconds: What a case may take.
        only: Run the case of this seed alone.
        commands: Only these commands.
        limit: Stop after so many seconds.
        verbose: Report every case.
        report: Called with a line about each finding.
    """
    counts: collections.Counter = collections.Counter()
    findings: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="basis-fuzz-") as top:
        world = make_world(Path(top, "world"))
        os.environ["BASIS_DATA"] = str(world / "root")
        _load_everything(world)
        numbers = [only] if only is not None else range(seed, seed + cases)
        for number in numbers:
            if time.monotonic() - began > limit:
                break
            folder = Path(top, "case")
            for name in ("in", "out"):
                (folder / name).mkdir(parents=True)
            case = make_case(random.Random(number), folder / "in", world, commands or COMMANDS)
            outcome = run_case(case, folder, world, seconds)
            wrong = outcome.complaints()
            counts["cases"] += 1
            counts[f"of {case.command}"] += 1
            counts[
                "refused" if outcome.code == 2 else "done" if outcome.code == 0 else "other"
            ] += 1
            counts["slowest"] = max(counts["slowest"], round(outcome.seconds, 1))
            for complaint in wrong:
                counts[complaint.split(" ")[0]] += 1
            if wrong or only is not None or verbose:
                last = outcome.err.strip().splitlines()[-1:] or [""]
                line = f"seed {number} {case}: {', '.join(wrong) or 'as promised'}: {last[0][:300]}"
                findings += [line] if wrong else []
                report(line)
                if only is not None:
                    report(outcome.out + outcome.err)
            elif counts["cases"] % 500 == 0:
                report(f"{counts['cases']} cases, {time.monotonic() - began:.0f} s")
            shutil.rmtree(folder)
    counts["seconds"] = round(time.monotonic() - began)
    counts["findings"] = len(findings)
    return counts, findings


def _load_everything(world: Path) -> None:
    """Imports what cases import, so that every fork has it; no thread is started."""
    import importlib
    import pkgutil

    import torch

    import basis

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(basis.__path__, "basis."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "jinja2", "lmdb", "tqdm",
                 "scipy.optimize", "diffusers", "huggingface_hub", "PIL.Image"):  # fmt: skip
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    from PIL import Image

    Image.init()


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="a case's time (10)")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds in all")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case, with its output")
    parser.add_argument("--verbose", action="store_true", help="tell of every case")
    parser.add_argument("--commands", nargs="+", default=[], choices=COMMANDS)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    counts, findings = fuzz(
        args.cases,
        args.seed,
        seconds=args.seconds,
        only=args.only,
        commands=args.commands,
        limit=args.limit,
        verbose=args.verbose,
        report=lambda line: print(line, flush=True),
    )
    print(json.dumps(dict(counts)))
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
