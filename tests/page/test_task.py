"""Separations of the page: frames, limits, files, and the code that repeats them."""

import dataclasses
import json
import threading

import pytest
import torch

import basis
from basis.cli import main
from basis.page.access import Limits
from basis.page.images import in_bytes, sample_picture, samples
from basis.page.task import Run, Task
from basis.page.views import comparison_view, equation_view, frame_view, result_view
from basis.signals.observation import Observation

LIMITS = Limits()


def digits(alphas=(1.0, 0.5), **settings):
    return Task("separate", basis.mix(["sample:3", "sample:18"], alphas), **settings)


def photo(kind, **settings):
    values = samples("sample-photos").floats([4])
    mask = None
    if kind == "inpaint":
        mask = torch.ones(1, 32, 32)
        mask[:, 10:16, 10:16] = 0
    else:
        values = in_bytes(values.mean(dim=1, keepdim=True))
    observation = Observation(values, batched=True)
    return Task(kind, observation, "cifar10", mask=mask, **settings)


def finish(run):
    for _ in run.watch(every=0.01):
        pass
    assert run.join(10)
    return run


@pytest.fixture(scope="module")
def separated():
    return finish(Run(digits(samples=2), LIMITS).start())


def test_a_run_shows_its_frames_and_has_the_result_of_separate(separated):
    task, result = separated.task, separated.result
    again = basis.separate(task.observation, "mnist", (1.0, 0.5), method="fast", samples=2)
    assert torch.equal(result.sources, again.sources)
    assert torch.equal(result.samples, again.samples)
    assert result.evaluations == again.evaluations  # frames are not counted
    frames = separated.frames
    assert len(frames) >= 2 and frames[0].states.shape[1:] == (2, 1, 28, 28)
    assert frames[0].clean.shape == frames[0].states.shape
    assert frames[0].sigma > 0.5 and frames[-1].sigma < 0.2
    assert [f.step for f in frames] == sorted(f.step for f in frames)
    assert separated.step == separated.steps


def test_views_of_a_result(separated):
    view = result_view(separated)
    for words in ("source 1", "dB", "sample 2", "standard deviation", "mean", "plausibility"):
        assert words in view
    assert view.count("<img") == 3 * 2 + 2 * 2 + 2 + 2  # sources and truth, samples, mean, std
    live = frame_view(separated.frames[:1])
    assert "noise level" in live and "http" not in live and frame_view([]) == ""
    compared = comparison_view([separated, separated])
    assert compared.count("<img") == 4 and "PSNR" in compared


def test_the_equation_marks_the_active_source_and_escapes_labels():
    pictures = [sample_picture("sample", i) for i in (3, 18)]
    pictures.append(dataclasses.replace(pictures[0], label="<b>"))
    view = equation_view(pictures, (1.0, 0.25, 0.5), active=1)
    assert view.count("<button") == 3 and "0.25 ×" in view and view.count("<img") == 4
    assert view.count('aria-pressed="true"') == 1 and "<b>" not in view


@pytest.mark.parametrize(
    "task",
    [
        digits(method=20, samples=1),
        digits((1.0, 0.6), method=20, alphas_known=False),
        photo("colorize", method=20),
        photo("inpaint", method=20),
    ],
    ids=["separate", "unknown alphas", "colorize", "inpaint"],
)
def test_files_and_code_repeat_the_result(task, tmp_path, monkeypatch):
    result = finish(Run(task, LIMITS).start()).result
    folder = result.save(tmp_path / "files")
    task.save_inputs(folder)
    record = json.loads((folder / "run.json").read_text())
    assert record["seed"] == 0 and (folder / "panel.png").is_file()
    monkeypatch.chdir(folder)
    names = {}
    exec(task.python_code(), names)
    # Photos are stored with 8 bits, as they were used.
    assert torch.allclose(names["result"].sources, result.sources, atol=1e-4)
    if task.kind == "inpaint":
        kept = (result.sources[0, 0] - task.observation.values[0]) * task.mask
        assert kept.abs().max() < 1 / 255


def test_the_command_repeats_the_result(separated, tmp_path, monkeypatch, capsys):
    separated.task.save_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(separated.task.command().split()[1:]) == 0, capsys.readouterr().err
    saved = basis.read(tmp_path / "separated" / "mixture-source1.png").values
    expected = separated.result.sources[0, 0]
    assert (saved.view_as(expected) - expected).abs().max() < 2 / 255
    parts = photo("inpaint").command()
    assert "--mask mask.png" in parts and "--method ancestral" in parts
    assert digits(alphas_known=False).command().count("unknown") == 2


def test_stop_ends_a_run_after_the_current_step():
    slots = threading.BoundedSemaphore(1)
    run = Run(digits(method="basis"), LIMITS, slots, threads=1).start()
    for _ in run.watch(every=0.01):
        if run.frames:
            run.stop()
    assert run.join(60) and "Stopped after" in run.message and run.result is None
    assert slots.acquire(blocking=False)


def test_no_more_runs_at_the_same_time_than_slots():
    slots = threading.BoundedSemaphore(1)
    slots.acquire()
    run = Run(digits(), LIMITS, slots).start()
    next(run.watch())
    assert run.steps == 0 and not run.frames
    run.stop()
    slots.release()
    assert run.join(60) and "Stopped" in run.message


def test_a_run_ends_at_its_time_limit_and_if_nobody_watches():
    run = finish(Run(digits(method="basis"), Limits(seconds=0.2)).start())
    assert "0.2 seconds" in run.message
    run = Run(digits(method="basis"), Limits(idle=0.2)).start()
    assert run.join(60) and "closed" in run.message


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (digits((1.0, 0.0)), "alpha of zero"),
        (digits(prior="cifar10"), "cifar10"),
        (digits(prior="nothing"), "nothing"),
        (dataclasses.replace(photo("inpaint"), mask=torch.ones(1, 32, 32)), "nothing is marked"),
        (dataclasses.replace(photo("inpaint"), mask=torch.zeros(1, 32, 32)), "all of the photo"),
    ],
)
def test_impossible_tasks_end_with_one_line(task, words):
    run = finish(Run(task, LIMITS).start())
    assert words in run.message and "\n" not in run.message and run.result is None
