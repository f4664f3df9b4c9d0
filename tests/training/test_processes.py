import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from basis.cli import main
from basis.errors import BasisError
from basis.files import folder_lock
from basis.store.loading import load_prior
from basis.training.run import train
from basis.training.state import read_state

RUN = """
import sys, torch
from basis.training.run import train

if __name__ == "__main__":
    g = torch.Generator().manual_seed(0)
    data = (torch.rand(128, 1, 8, 8, generator=g) * 255).to(torch.uint8)
    sizes = {"unet": {"widths": (8,), "blocks": (1,)}, "glow": {"width": 8}}[sys.argv[3]]
    train(data, out=sys.argv[1], kind=sys.argv[3], images=int(sys.argv[2]), batch_size=10,
          warmup=16, seed=3, held_out=8, variance_images=20, energy_pairs=0, device="cpu", **sizes)
"""


def start(folder, processes, images, kind="unet"):
    script = folder.parent / "run.py"
    script.write_text(RUN)
    words = [sys.executable]
    if processes > 1:
        words += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = [*words, str(script), str(folder), str(images), kind]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments):
    process = start(*arguments)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 0, err[-2000:]
    return err


def test_several_processes_train_as_one(tmp_path):
    """The same run apart from rounding, which a single process continues."""
    data = torch.rand(128, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = (data * 255).to(torch.uint8)
    settings = {"batch_size": 10, "warmup": 16, "seed": 3, "held_out": 8, "variance_images": 20,
                "energy_pairs": 0, "progress": False, "widths": (8,), "blocks": (1,)}  # fmt: skip
    run(tmp_path / "several", 2, 50)
    train(data, out=tmp_path / "one", images=50, **settings)
    for folder in ("one", "several"):
        train(data, out=tmp_path / folder, images=100, **settings)
    one, several = (read_state(tmp_path / name) for name in ("one", "several"))
    assert one[0].step == several[0].step == 10
    for name, value in one[1].items():
        if name.startswith("model."):
            assert torch.allclose(value, several[1][name], atol=2e-4), name
    assert torch.equal(one[1]["generator"], several[1]["generator"])


@pytest.mark.slow
def test_flows_train_on_several_processes(tmp_path):
    run(tmp_path / "glow", 2, 20, "glow")
    assert load_prior(tmp_path / "glow").has_likelihood


def test_a_killed_run_is_whole_and_leaves_no_lock(tmp_path):
    process = start(tmp_path / "run", 1, 10**7)
    while not (tmp_path / "run" / "state-previous.safetensors").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert read_state(tmp_path / "run")[0].step > 0
    with folder_lock(tmp_path / "run"):
        pass


def test_wrong_variables_of_torchrun(tmp_path, monkeypatch, blobs, tiny):
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(BasisError, match="WORLD_SIZE"):
        train(blobs(), out=tmp_path / "a", **tiny)
    monkeypatch.setenv("WORLD_SIZE", "2")  # other tools set it too, without an address
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert train(blobs(), out=tmp_path / "a", **tiny).shape == (1, 8, 8)


@pytest.mark.parametrize("command", ["train", "ladder"])
def test_a_second_run_in_a_folder_is_refused(tmp_path, capsys, command):
    """Before it reads what the first one is writing."""
    out = tmp_path / "out"
    words = {
        "train": [
            "train",
            "sample",
            "--widths",
            "8",
            "--blocks",
            "1",
            "--images",
            "16",
            "--held-out",
            "64",
            "--variance-images",
            "0",
        ],
        "ladder": [
            "lab",
            "ladder",
            "--data",
            "sample",
            "--size",
            "8",
            "--first",
            "8",
            "--each",
            "8",
            "--held-out",
            "64",
            "--width",
            "4",
            "--depth",
            "1",
        ],
    }[command]
    code = (
        "import sys\nfrom basis.files import folder_lock\n"
        "with folder_lock(sys.argv[1]): print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        before = sorted(os.listdir(out))
        assert main([*words, "--out", str(out)]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert str(out) in error and "in use" in error
        assert sorted(os.listdir(out)) == before
    finally:
        holder.kill()
        holder.communicate()
    with folder_lock(out):
        pass
