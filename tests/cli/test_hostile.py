"""Full disks, little memory, broken numerics: one line, and nothing is lost."""

import shutil
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from cli.conftest import fails, run

QUICK = ["--method", "gibbs", "--steps", "1"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_is_one_line(tmp_path, priors, pictures):
    """A limit on the size of files stands for a full disk."""
    import resource

    out = tmp_path / "o"
    words = ["separate", pictures / "a.png", "--prior", priors["tiny"], *QUICK, "--out", out]
    done = subprocess.run(
        [sys.executable, "-m", "basis", *map(str, words)], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )  # fmt: skip
    assert done.returncode == 2 and "cannot write" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not (out / "run.json").exists()


def test_space_is_checked_before_the_work(tmp_path, capsys, monkeypatch):
    few = shutil.disk_usage(tmp_path)._replace(free=2 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: few)
    monkeypatch.setattr("basis._separate.separate", lambda *a, **s: pytest.fail("ran"))
    words = ["separate", "sample", "--count", 512, "--out", tmp_path / "s"]
    assert "free" in fails(capsys, *words)
    monkeypatch.setattr("basis.training.trainer.Trainer.run", lambda *a, **s: pytest.fail("ran"))
    assert "free" in fails(capsys, "train", "sample", "--out", tmp_path / "run")


def test_memory_of_a_job_does_not_grow_with_its_observations(tmp_path, priors):
    """The arrays of 1,000 more observations take 1.3 MB; 16 bytes of each are kept."""
    peaks = []
    run("separate", "sample", "--count", 1, *QUICK, "--out", tmp_path / "warm")
    for count in (300, 1_300):
        given = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
        np.save(tmp_path / "many.npy", given)
        del given
        words = ["separate", tmp_path / "many.npy", "--prior", priors["tiny"], *QUICK, "--job"]
        tracemalloc.start()
        assert run(*words, "--out", tmp_path / str(count)) == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 400_000, peaks


def test_matrices_without_a_solution_are_one_line(capsys, monkeypatch):
    def broken(args):
        torch.linalg.inv(torch.zeros(2, 2))

    monkeypatch.setattr("basis.cli.mix.run", broken)
    assert "matrix" in fails(capsys, "mix", "a", "b")


def test_missing_memory_is_one_line(capsys, monkeypatch):
    def broken(args):
        raise MemoryError

    monkeypatch.setattr("basis.cli.mix.run", broken)
    assert "memory" in fails(capsys, "mix", "a", "b")
