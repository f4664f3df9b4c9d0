import pytest

from basis.progress import Progress, duration, progress_bar


def test_a_function_is_called_and_false_shows_nothing():
    seen = []
    with progress_bar(seen.append, "work") as report:
        report(Progress(1, 2, 0.5))
    assert seen[0].done == 1
    for silent in (False, None):  # None: not on a terminal here
        with progress_bar(silent, "work") as report:
            assert report is None


def test_long_work_is_announced_with_its_time(monkeypatch, capsys):
    clock = iter([0.0, 3.0])
    monkeypatch.setattr("basis.progress.time.monotonic", lambda: next(clock))
    with progress_bar(True, "separating", "256x256: 121 tiles of 28x28") as report:
        report(Progress(1, 340, 0.5))
        report(Progress(2, 340, 0.5))
    assert "121 tiles of 28x28, about 17 min" in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "words"), [(40, "40 s"), (1020, "17 min"), (9000, "2.5 h")])
def test_durations(seconds, words):
    assert duration(seconds) == words
