"""Training that is killed, whose files are damaged, and that runs on several processes."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from test_training import CONFIG, trainer

from basis.cli import main
from basis.errors import BasisError
from basis.files import folder_lock
from basis.store.folder import read_card, save_prior
from basis.store.loading import load_prior
from basis.training.state import read_state
from basis.training.trainer import SavePace

STATE, BEFORE = "state.safetensors", "state-before.safetensors"


def harmed(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[-7] ^= 1
    path.unlink()  # it may have a second name, under which it stays as it is
    path.write_bytes(data[: len(data) // 2] if harm == "cut" else data)


@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_damaged_state_gives_way_to_the_one_before(tmp_path, capsys, harm):
    run = trainer(tmp_path)
    for _ in range(2):
        run.train_step()
        run.save()
    harmed(tmp_path / STATE, harm)
    again = trainer(tmp_path)
    assert again.step == 1
    told = capsys.readouterr().err
    assert "warning" in told and "step 1" in told and told.count("\n") == 1
    again.train_step()
    assert all(
        torch.equal(a, b)
        for a, b in zip(run.model.parameters(), again.model.parameters(), strict=True)
    )
    harmed(tmp_path / BEFORE, "cut")
    with pytest.raises(BasisError, match=r"as a training state|is damaged"):
        trainer(tmp_path)


def test_states_of_earlier_versions_are_read(tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    run = trainer(tmp_path)
    run.train_step()
    run.save()
    with safe_open(tmp_path / STATE, framework="pt") as file:
        text = file.metadata()["training"]
    save_file(load_file(tmp_path / STATE), tmp_path / STATE, {"training": text})
    assert read_state(tmp_path)[0]["step"] == 1


def test_saving_takes_its_share_of_the_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    pace, saving = SavePace(0.02), 0.0
    for _ in range(100_000):
        clock[0] += 0.1
        if pace.due:
            with pace:
                clock[0] += 0.25
                saving += 0.25
    assert 0.018 < saving / clock[0] <= 0.02


def test_a_run_saves_often(tmp_path, monkeypatch):
    """A kill costs no more than what saving is allowed to: seconds, not two minutes."""
    saves = []
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    run = trainer(tmp_path)
    step, save = run.train_step, run.save

    def slow_step():
        clock[0] += 1.5
        return step()

    def counted():
        saves.append(run.step)
        save()

    monkeypatch.setattr(run, "train_step", slow_step)
    monkeypatch.setattr(run, "save", counted)
    run.run(progress=False)
    assert saves == [*range(1, 11), 10]


def test_a_second_run_in_a_folder_is_refused(tmp_path):
    with folder_lock(tmp_path):
        process = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(
                """
                import sys
                sys.path.insert(0, sys.argv[1])
                from test_training import trainer
                trainer(sys.argv[2]).run(progress=False)
                """
            ), str(Path(__file__).parent), str(tmp_path)], capture_output=True, text=True,
        )  # fmt: skip
    assert process.returncode and f"in use by process {os.getpid()}" in process.stderr


class Killed(BaseException):
    pass


def kill_after(calls, patch):
    """Ends the process, as far as files go, at a later call of what writing one takes."""
    left = [calls]

    def fatal(original):
        def counted(*words, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return original(*words, **options)

        return counted

    for name in ("replace", "fsync", "chmod"):
        patch.setattr(os, name, fatal(getattr(os, name)))


def test_a_prior_is_written_as_one(tmp_path, monkeypatch):
    """Killed at any write, the folder holds the old prior or the new one, and never a mixture."""
    from test_training import blobs

    from basis.training.run import train

    prior = train(
        torch.cat([blobs()] * 4), tmp_path / "run", sizes={"widths": (8,), "blocks": (1,)},
        config=CONFIG, held_out=8, variance_images=0, progress=False,
    )  # fmt: skip
    folder = tmp_path / "run"
    old = {n: p.clone() for n, p in prior.module.named_parameters()}
    new = {n: p + 1 for n, p in old.items()}
    entries = {k: v for k, v in read_card(folder).to_dict().items() if k != "sha256"}
    seen = set()
    for fatal in range(20):
        save_prior(folder, old, entries)
        with monkeypatch.context() as patch:
            kill_after(fatal, patch)
            try:
                save_prior(folder, new, entries)
                finished = True
            except Killed:
                finished = False
        found = dict(load_prior(folder).module.named_parameters())
        which = [all(torch.allclose(found[n], w[n], atol=1e-2) for n in found) for w in (old, new)]
        assert sorted(which) == [False, True]
        seen.add((finished, which.index(True)))
        if finished:
            break
    assert seen == {(False, 0), (False, 1), (True, 1)}


RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from test_training import CONFIG, blobs
import dataclasses, torch
from basis.training import train

if __name__ == "__main__":
    config = dataclasses.replace(CONFIG, images=int(sys.argv[3]), batch=10)
    train(torch.cat([blobs()] * 2), sys.argv[2], config=config, held_out=8, progress=False,
          family=sys.argv[4], variance_images=20, report=print,
          sizes={"widths": (8,), "blocks": (1,)} if sys.argv[4] == "unet" else {"width": 8})
"""


def run_on(folder, processes, images, family="unet"):
    script = folder.parent / "run.py"
    script.write_text(RUN)
    words = [sys.executable]
    if processes > 1:
        words += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words += [script, Path(__file__).parent, folder, images, family]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_several_processes_train_as_one(tmp_path):
    """The same images and noise, so the same run but for rounding; and with another number of
    processes it goes on.
    """
    run_on(tmp_path / "one", 1, 50)
    run_on(
        tmp_path / "one", 1, 100
    )  # in the same two parts: steps depend on how many are asked for
    told = run_on(tmp_path / "three", 3, 50)
    assert told.count("prior:") == 1
    told = run_on(tmp_path / "three", 2, 100)
    assert "going on from step 5" in told and told.count("going on") == 1
    one, three = (read_state(tmp_path / name) for name in ("one", "three"))
    assert one[0]["step"] == three[0]["step"] == 10
    for name, value in one[1].items():
        if name.startswith("model."):
            assert torch.allclose(value, three[1][name], atol=2e-4), name
    assert torch.equal(one[1]["generator"], three[1]["generator"])


def test_flows_train_on_several_processes(tmp_path):
    run_on(tmp_path / "glow", 2, 20, "glow")
    assert load_prior(tmp_path / "glow").has_likelihood


def test_kill_loses_little_and_nothing_is_torn(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RUN)
    words = [sys.executable, script, Path(__file__).parent, tmp_path / "run", 10**7, "unet"]
    process = subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / BEFORE).exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    meta, _ = read_state(tmp_path / "run")
    assert meta["step"] > 0
    with folder_lock(tmp_path / "run"):  # the lock did not stay behind
        pass


@pytest.mark.parametrize("command", ["train", "ladder", "reproduce"])
def test_a_second_command_in_a_folder_is_refused(tmp_path, capsys, command):
    """Before it reads what the first one is writing; a crash leaves no lock behind."""
    out = tmp_path / "out"
    words = {
        "train": ["train", "--data", "sample", "--widths", "8", "--blocks", "1", "--batch", "8",
                  "--images", "16", "--held-out", "64", "--variance-images", "0"],
        "ladder": ["ladder", "--data", "sample", "--size", "8", "--first", "8", "--each", "8",
                   "--batch", "8", "--held-out", "64", "--width", "4", "--depth", "1"],
        "reproduce": ["reproduce", "teaser", "--data", "sample"],
    }[command]  # fmt: skip
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom basis.files import folder_lock\n"
         "with folder_lock(sys.argv[1]): print('held', flush=True); input()", str(out)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "held\n"
        assert main([*words, "--out", str(out)]) == 2
        told = capsys.readouterr().err.splitlines()
        assert f"in use by process {holder.pid}" in told[-1]
        assert [path.name for path in out.iterdir()] == [".lock"]
    finally:
        holder.kill()
        holder.wait()
    with folder_lock(out):
        pass
