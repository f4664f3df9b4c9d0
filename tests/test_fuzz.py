"""A few seeded cases of `scripts/fuzz.py`, and that it finds what is wrong."""

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
pytest.importorskip("resource", reason="forks and limits of POSIX")

from fuzz import fuzz
from fuzz_forks import Outcome, run_forked


def test_bad_input_is_refused_in_one_line():
    counts, findings = fuzz(60, 7, limit=20, report=lambda line: None)
    assert findings == []
    assert counts["cases"] >= 5 and counts["as promised"] == counts["cases"]


def test_a_finding_is_found(tmp_path):
    def broken():
        raise KeyError("x")

    def outside():
        Path("elsewhere").write_text("x")
        return 0

    def lines():
        print("a\nb", file=sys.stderr)
        return 2

    works = {
        "traceback": broken,
        "crash by signal 9": lambda: os.kill(os.getpid(), 9),
        "2 lines on stderr": lines,
        "exit code 3": lambda: 3,
        "fault of the program": lambda: 70,
        "control characters": lambda: print("\x1b[31m") or 0,
        "touched": outside,
        "hang": lambda: time.sleep(60),
    }
    for complaint, work in works.items():
        folder = tmp_path / complaint.replace(" ", "-")
        folder.mkdir()
        done = run_forked(work, folder, seconds=1, allowed=[folder / "out"])
        assert any(words.startswith(complaint) for words in done.complaints()), complaint
    assert Outcome(code=0).complaints() == [] == Outcome(code=2, err="one line\n").complaints()
