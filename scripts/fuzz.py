"""Bad input at volume: seeded cases over every reader and command.

    python scripts/fuzz.py --cases 10000 --seed 0

A case is a command line and the files it names, damaged or crafted. It may succeed (exit code 0) or
be refused (code 2, one printable line on stderr). Anything else is a finding: a traceback or a
fault of the program (code 70), several lines or control characters, a crash, more than --seconds of
time, or a file touched outside of the case's output folder. Findings are printed as they come, with
the seed of their case (`--only SEED` runs it alone); the last line has the counts. The exit code is
1 where there were findings.

Cases run one after the other in a fork of a process that has everything loaded; a new fork takes
over where one crashed or hung.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_cases import COMMANDS, make_case
from fuzz_forks import WRITES, Outcome, busy, note, snapshot
from fuzz_world import make_world


class Worker:
    """A fork that runs one case after the other, so that only one fork is needed for many.

    It is given up, and the next one takes over, where a case crashes it or takes too long.
    """

    def __init__(self, top: Path, world: Path, commands: Sequence[str], seconds: float) -> None:
        self.top, self.world, self.commands, self.seconds = top, world, commands, seconds
        self.child = 0

    def run(self, number: int) -> tuple[str, Outcome]:
        """The case of this seed: what it was, and what became of it."""
        if not self.child:
            self._start()
        shutil.rmtree(self.top / "case", ignore_errors=True)
        started = time.monotonic()
        os.write(self.ask, f"{number}\n".encode())
        outcome = Outcome()
        while not select.select([self.answer], [], [], 0.05)[0]:
            outcome.seconds = time.monotonic() - started
            late = outcome.seconds > self.seconds
            if late and (busy(self.child) - self.busy > self.seconds or outcome.seconds > 120):
                os.kill(self.child, signal.SIGKILL)
                outcome.hung = True
                break
        line = b""
        while not outcome.hung and not line.endswith(b"\n"):
            part = os.read(self.answer, 1 << 16)
            if not part:
                break
            line += part
        told = (self.top / "told").read_text() if (self.top / "told").exists() else "?"
        if line.endswith(b"\n"):
            self.busy = busy(self.child, running=True)
            return told, Outcome(**json.loads(line))
        _, status = os.waitpid(self.child, 0)
        self.child = 0
        if (self.top / "broken").exists():
            raise RuntimeError((self.top / "broken").read_text())
        outcome.signal = 0 if outcome.hung else max(0, -os.waitstatus_to_exitcode(status))
        outcome.seconds = time.monotonic() - started
        error = self.top / "case" / "stderr"
        outcome.err = error.read_text(errors="backslashreplace") if error.exists() else ""
        return told, outcome

    def stop(self) -> None:
        """Ends the fork."""
        if self.child:
            os.close(self.ask)
            os.waitpid(self.child, 0)

    def _start(self) -> None:
        theirs, self.ask = os.pipe()
        self.answer, ours = os.pipe()
        self.busy = 0.0
        self.child = os.fork()
        if self.child:
            os.close(theirs)
            os.close(ours)
            return
        os.close(self.ask)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 30),) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.written: list[str] | None = None
        sys.addaudithook(self._audit)
        code = 1
        try:
            with open(theirs) as asked:
                for line in asked:
                    outcome = self._work(int(line))
                    os.write(ours, json.dumps(vars(outcome)).encode() + b"\n")
            code = 0
        except BaseException:
            (self.top / "broken").write_text(traceback.format_exc())
        finally:
            os._exit(code)  # nothing of the parent's is cleaned up here

    def _audit(self, event: str, args: tuple) -> None:
        if self.written is not None and event in WRITES:
            case = str(self.top / "case")
            places = [f"{case}/out", tempfile.gettempdir()]
            noted, self.written = self.written, None  # what is done here is not the case's doing
            note(event, args, places, [case], noted)
            self.written = noted

    def _work(self, number: int) -> Outcome:
        """Makes a case and runs it, in this process."""
        from basis.cli import main

        folder = self.top / "case"
        for name in ("in", "out"):
            (folder / name).mkdir(parents=True)
        case = make_case(random.Random(number), folder / "in", self.world, self.commands)
        (self.top / "told").write_text(f"{case.command} {case}", errors="backslashreplace")
        watched = [self.world, folder / "in"]
        before = snapshot(watched)
        os.chdir(folder)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, descriptor)
            os.close(handle)
        sys.stdout = open(1, "w", encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
        outcome, started = Outcome(), time.monotonic()
        self.written = []
        try:
            outcome.code = main(case.words)
        except SystemExit as stop:
            outcome.code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
            outcome.code = 1
        gc.collect(1)  # what is said when things are thrown away belongs to the case
        written, self.written = self.written or [], None
        sys.stdout.flush()
        sys.stderr.flush()
        outcome.seconds = time.monotonic() - started
        outcome.out, outcome.err = (
            Path(name).read_bytes().decode("utf-8", "backslashreplace")
            for name in ("stdout", "stderr")
        )
        after = snapshot(watched)
        changed = [path for path in before if before[path] != after.get(path)]
        outcome.touched = written + changed + [path for path in after if path not in before]
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
        limit: Stop after so many seconds of cases.
        verbose: Report every case.
        report: Called with a line about each finding.
    """
    counts: collections.Counter = collections.Counter()
    findings: list[str] = []
    began = time.monotonic()
    root = os.environ.get("BASIS_DATA")
    with tempfile.TemporaryDirectory(prefix="basis-fuzz-") as top:
        world = make_world(Path(top, "world"))
        os.environ["BASIS_DATA"] = str(world / "root")
        _load_everything()
        worker = Worker(Path(top), world, commands or COMMANDS, seconds)
        began = time.monotonic()
        for number in [only] if only is not None else range(seed, seed + cases):
            if time.monotonic() - began > limit:
                break
            told, outcome = worker.run(number)
            wrong = outcome.complaints()
            counts["cases"] += 1
            counts[f"of {told.split(' ')[0]}"] += 1
            kind = {0: "done", 2: "refused"}.get(outcome.code, "other")  # type: ignore[arg-type]
            counts[kind] += 1
            counts["slowest"] = max(counts["slowest"], round(outcome.seconds, 1))
            counts["as promised"] += not wrong
            for complaint in wrong:
                counts[complaint.split(" ")[0]] += 1
            if wrong or only is not None or verbose:
                last = outcome.err.strip().splitlines()[-1:] or [""]
                line = f"seed {number} {told}: {', '.join(wrong) or 'as promised'}: {last[0][:300]}"
                findings += [line] if wrong else []
                report(line)
                if only is not None:
                    report(outcome.out + outcome.err)
            if counts["cases"] % 100 == 0:
                report(f"{counts['cases']} cases, {time.monotonic() - began:.0f} s")
        worker.stop()
    if root is None:
        os.environ.pop("BASIS_DATA")
    else:
        os.environ["BASIS_DATA"] = root
    counts["seconds"] = round(time.monotonic() - began)
    counts["findings"] = len(findings)
    return counts, findings


def _load_everything() -> None:
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
                 "scipy.optimize", "diffusers", "huggingface_hub", "PIL.Image",
                 "distributed"):  # fmt: skip
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    from PIL import Image

    Image.init()
    # What is the same in every case, and most of a short one's time: which packages are installed,
    # argparse's words in the user's language, the fonts of figures.
    import argparse
    import importlib.metadata

    from basis.plots.charts import figure_png, new_figure
    from basis.store import loading

    loading.entry_points = functools.cache(importlib.metadata.entry_points)  # type: ignore[assignment]
    argparse._ = str  # type: ignore[attr-defined]
    figure_png(new_figure(4, 3)[0])
    gc.collect()
    gc.freeze()  # so that forks share what there is


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
