import os
import struct
import time

import pytest
import torch

import basis
from basis.progress import Progress, duration, progress_bar, with_bar


def slow_denoiser(x, sigma):
    time.sleep(0.1)  # long enough for a bar to be drawn
    return x / (1 + sigma.view(-1, 1, 1, 1) ** 2)


def test_a_function_is_called_and_false_shows_nothing():
    seen = []
    with progress_bar(seen.append, "work") as report:
        report(Progress(1, 2, 0.5))
    assert seen[0].done == 1
    for silent in (False, None):  # None: not on a terminal here
        with progress_bar(silent, "work") as report:
            assert report is None


@pytest.mark.parametrize("progress", [True, None])
def test_long_work_is_announced_with_its_time(monkeypatch, capsys, progress):
    clock = iter([0.0, 3.0])
    monkeypatch.setattr("basis.progress.time.monotonic", lambda: next(clock))
    with progress_bar(progress, "separating", "256x256: 121 tiles of 28x28") as report:
        report(Progress(1, 340, 0.5))
        report(Progress(2, 340, 0.5))
    assert "121 tiles of 28x28, about 17 min" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(24, 80), (0, 0)])
def test_a_bar_on_a_terminal(monkeypatch, size):
    termios, fcntl = pytest.importorskip("termios"), pytest.importorskip("fcntl")
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with open(writer, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setattr("basis.progress.DELAY", 1e-9)
        monkeypatch.setattr("basis.progress.LONG", 0.0)
        monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
        prior = basis.Prior.from_denoiser(slow_denoiser, (1, 8, 8), 0.01, 10.0)
        basis.separate(torch.rand(1, 1, 12, 8), prior, method=basis.samplers.Gibbs(steps=3))
        terminal.flush()
        shown = os.read(reader, 1 << 20).decode()
    os.close(reader)
    assert "12x8: 2 tiles of 8x8, prior" in shown and ", about " in shown
    assert "separating: " in shown and "%|" in shown


@pytest.mark.parametrize(("seconds", "words"), [(40, "40 s"), (1020, "17 min"), (9000, "2.5 h")])
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_items_are_counted_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("basis.progress.DELAY", 1e-9)
    assert list(with_bar("abc", "testing")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("basis.progress._interactive", lambda: True)
    for item in with_bar("abc", "testing"):
        time.sleep(0.1 * (item == "b"))
    assert "testing: " in capsys.readouterr().err
