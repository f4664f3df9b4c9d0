"""Jobs: the same store however they are cut and whatever happens to them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from basis._mix import draw_pairs
from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.jobs.job import colorize_job, separate_job
from basis.jobs.store import open_store
from basis.jobs.streams import ArrayStream, FileStream
from basis.priors.gaussian import GaussianMixture
from basis.signals.datasets import load_images

SETTINGS = {"sampler": "gibbs", "steps": 4, "samples": 4}
COUNT = 150


@pytest.fixture(scope="module")
def prior():
    means = torch.zeros(4, 1, 4, 4)
    means[1, :, :, :2] = 1
    means[2, :, :2] = 1
    means[3, :, 1:3, 1:3] = 1
    return GaussianMixture(means, torch.full((4,), 1e-3))


@pytest.fixture(scope="module")
def mixtures(prior):
    draw = torch.randint(4, (COUNT, 2), generator=torch.Generator().manual_seed(0))
    noise = 0.01 * torch.randn(COUNT, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    mixed = prior.means.reshape(4, 1, 4, 4)[draw].sum(dim=1) + noise
    mixed[140] = mixed[3]  # repeated, in another shard
    return mixed.float()


def contents(folder):
    """Everything of a store but the record of how it went."""
    return {
        path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != "run.json"
    }


def run_record(folder):
    return json.loads((Path(folder) / "run.json").read_text())


@pytest.fixture(scope="module")
def undisturbed(prior, mixtures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    separate_job(mixtures, prior, folder, **SETTINGS)
    return contents(folder)


def stopping_after(shards):
    """A progress callback that is interrupted, as by Ctrl-C, after so many shards."""

    def progress(p):
        nonlocal shards
        if p.now:
            shards -= 1
        if shards == 0:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("shard", [1, 40, 1000])
@pytest.mark.parametrize("cores", [1, 2])
def test_the_store_does_not_depend_on_shards_or_threads(
    prior, mixtures, undisturbed, tmp_path, shard, cores
):
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        separate_job(mixtures, prior, tmp_path, shard=shard, **SETTINGS)
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    assert contents(tmp_path) == undisturbed


def test_a_job_separates_as_separate_does(prior, mixtures, tmp_path):
    store = separate_job(mixtures, prior, tmp_path, seed=3, keep_samples=True, **SETTINGS)
    whole = separate(mixtures, prior, seed=3, **SETTINGS)
    assert np.allclose(store["sources"], whole.sources.numpy(), atol=1e-4)
    assert np.allclose(store["samples"], whole.samples.numpy(), atol=1e-4)
    assert store["evaluations"].tolist() == whole.spent.tolist()
    # The repeated mixture is another draw, though the two are in different shards.
    assert not np.allclose(store["samples"][140], store["samples"][3], atol=1e-3)


def test_samples_are_kept_on_request_only(prior, mixtures, tmp_path):
    store = separate_job(mixtures[:8], prior, tmp_path, **SETTINGS)
    assert "samples" not in store.arrays
    with pytest.raises(BasisError, match="has no samples"):
        store["samples"]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_an_interrupted_job_goes_on(prior, mixtures, undisturbed, tmp_path, shards):
    with pytest.raises(KeyboardInterrupt):
        separate_job(
            mixtures, prior, tmp_path, shard=32, progress=stopping_after(shards), **SETTINGS
        )
    assert not (tmp_path / "store.json").exists()
    assert len(list((tmp_path / "shards").glob("0*.safetensors"))) == shards
    # Another size of shards does not matter: those that are there count.
    store = separate_job(mixtures, prior, tmp_path, shard=64, **SETTINGS)
    assert contents(tmp_path) == undisturbed
    assert run_record(tmp_path)["shards"] == 5
    assert len(store) == COUNT


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap"])
def test_a_damaged_shard_is_found_and_made_again(prior, mixtures, undisturbed, tmp_path, harm):
    with pytest.raises(KeyboardInterrupt):
        separate_job(mixtures, prior, tmp_path, shard=32, progress=stopping_after(2), **SETTINGS)
    first, second = sorted((tmp_path / "shards").glob("0*.safetensors"))[:2]
    data = bytearray(first.read_bytes())
    if harm == "flip":
        data[-5] ^= 1
    elif harm == "swap":
        data = bytearray(second.read_bytes())
    first.write_bytes(data[: {"cut": 100, "empty": 0}.get(harm, len(data))])
    separate_job(mixtures, prior, tmp_path, **SETTINGS)
    assert contents(tmp_path) == undisturbed
    assert run_record(tmp_path)["shards_damaged"] == 1


def test_a_finished_job_is_not_run_again(prior, mixtures, tmp_path):
    separate_job(mixtures[:40], prior, tmp_path, **SETTINGS)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    separate_job(mixtures[:40], prior, tmp_path, **SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_a_damaged_store_is_made_again(prior, mixtures, undisturbed, tmp_path, capsys):
    separate_job(mixtures, prior, tmp_path, **SETTINGS)
    data = bytearray((tmp_path / "sources.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "sources.npy").write_bytes(data)
    assert open_store(tmp_path).damaged() == ["sources.npy"]
    separate_job(mixtures, prior, tmp_path, **SETTINGS)
    assert "made again" in capsys.readouterr().err
    assert contents(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed 0 -> 1"),
        ({"steps": 5}, "sampler.steps 4 -> 5"),
        ({"alphas": (1.0, 0.5)}, "mixing.matrix"),
        ({"keep_samples": True}, "samples_kept"),
    ],
)
def test_another_job_is_refused(prior, mixtures, tmp_path, change, words):
    separate_job(mixtures[:8], prior, tmp_path, **SETTINGS)
    before = contents(tmp_path)
    with pytest.raises(BasisError, match=words):
        separate_job(mixtures[:8], prior, tmp_path, **{**SETTINGS, **change})
    with pytest.raises(BasisError, match="other values"):
        separate_job(mixtures[:8] + 0.01, prior, tmp_path, **SETTINGS)
    with pytest.raises(BasisError, match="count 8 -> 9"):
        separate_job(mixtures[:9], prior, tmp_path, **SETTINGS)
    assert contents(tmp_path) == before


def test_a_mixture_of_nan_fails_alone(prior, mixtures, undisturbed, tmp_path):
    harmed = mixtures.clone()
    harmed[5, 0, 0, 0] = float("nan")
    harmed[64:100] = float("inf")  # more than a block, and all of a shard of one block
    store = separate_job(harmed, prior, tmp_path, shard=1, **SETTINGS)
    bad = [5, *range(64, 100)]
    assert sorted(store.failures) == bad
    assert all("NaN or infinite" in reason for reason in store.failures.values())
    assert np.isnan(store["sources"][bad]).all() and np.isnan(store["residual"][bad]).all()
    good = [i for i in range(COUNT) if i not in bad]
    (tmp_path / "whole.npy").write_bytes(undisturbed["sources.npy"])
    assert np.array_equal(store["sources"][good], np.load(tmp_path / "whole.npy")[good])
    with pytest.raises(BasisError, match="none of the 3"):
        separate_job(harmed[64:67], prior, tmp_path / "none", **SETTINGS)


def test_a_mixture_that_no_source_can_make_fails_alone(mixtures, tmp_path):
    bounded = GaussianMixture(torch.zeros(1, 1, 4, 4), torch.ones(1), value_range=(0.0, 1.0))
    harmed = mixtures.clamp(0, 2)[:40]
    harmed[3] = 255.0
    store = separate_job(harmed, bounded, tmp_path, **SETTINGS)
    assert list(store.failures) == [3] and "divide 8-bit pixels" in store.failures[3]
    assert np.isfinite(np.delete(store["sources"], 3, axis=0)).all()


SCRIPT = """
import signal, sys, time, torch
from basis import GaussianMixture, separate_job
# A process that a shell started in the background ignores it, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
means = torch.zeros(4, 1, 4, 4)
means[1, :, :, :2] = 1
means[2, :, :2] = 1
means[3, :, 1:3, 1:3] = 1
prior = GaussianMixture(means, torch.full((4,), 1e-3))
mixtures, out, shard = torch.load(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def told(p):
    print(p.done, flush=True)
    time.sleep(float(sys.argv[4]))

if __name__ == "__main__":
    separate_job(mixtures, prior, out, shard=shard, sampler="gibbs", steps=4, samples=4,
                 progress=told)
"""


def started(folder, mixtures, out, *, shard=32, pause=0.0):
    """The job in a process of its own."""
    torch.save(mixtures, folder / "mixtures.pt")
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    words = [sys.executable, folder / "script.py", folder / "mixtures.pt", out, shard, pause]
    return subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_kill_and_the_lock(prior, mixtures, undisturbed, tmp_path):
    """kill -9 loses the shard under way; a second process is refused, but not after the kill."""
    out = tmp_path / "store"
    process = started(tmp_path, mixtures, out, pause=30)
    assert process.stdout.readline().strip() == "0"
    with pytest.raises(BasisError, match=f"in use by process {process.pid} on"):
        separate_job(mixtures, prior, out, **SETTINGS)
    process.kill()
    process.wait()
    assert (out / ".lock").exists()  # the file stays; the lock does not
    separate_job(mixtures, prior, out, **SETTINGS)
    assert contents(out) == undisturbed


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_one_line(prior, mixtures, undisturbed, small_disk):
    out = small_disk / "store"
    with pytest.raises(BasisError, match="has room for") as told:
        separate_job(mixtures.repeat(20, 1, 1, 1), prior, out, **SETTINGS)
    assert "\n" not in str(told.value)

    def fill(p):
        if p.now:  # someone else takes the room while the job is at work
            with open(small_disk / "other", "ab") as file:
                file.write(bytes(os.statvfs(small_disk).f_bavail * 4096))

    shutil.rmtree(out)
    with pytest.raises(BasisError, match=r"(?i)cannot write .*no space left.*same command") as told:
        separate_job(mixtures, prior, out, shard=32, progress=fill, **SETTINGS)
    assert "\n" not in str(told.value)
    (small_disk / "other").unlink()
    separate_job(mixtures, prior, out, **SETTINGS)
    assert contents(out) == undisturbed


def test_a_file_that_cannot_be_read_fails_alone(prior, mixtures, tmp_path):
    from basis.signals.observation import read_mixture

    paths = []
    for i in range(6):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], mixtures[i, 0].numpy())
    paths[2].write_bytes(b"nothing")
    np.save(paths[4], np.zeros((5, 5), dtype=np.float32))
    stream = FileStream(paths, lambda path: read_mixture(path, dims=2).mixture[0])
    store = separate_job(stream, prior, tmp_path / "out", **SETTINGS)
    assert sorted(store.failures) == [2, 4] and store.names == list("012345")
    assert "shape" in store.failures[4]


def test_arrays_on_disk_are_read_in_pieces(prior, mixtures, undisturbed, tmp_path, monkeypatch):
    np.save(tmp_path / "many.npy", mixtures.numpy())
    read = []
    original = ArrayStream.read

    def counted(self, start, stop):
        read.append(stop - start)
        return original(self, start, stop)

    monkeypatch.setattr(ArrayStream, "read", counted)
    separate_job(tmp_path / "many.npy", prior, tmp_path / "out", shard=32, **SETTINGS)
    assert contents(tmp_path / "out") == undisturbed
    assert max(read) <= 256 and sum(size == 32 for size in read) == 4


def test_colours_as_a_job(tmp_path):
    prior = GaussianMixture(
        torch.full((1, 3, 8, 8), 0.5), torch.tensor([0.05]), value_range=(0.0, 1.0)
    )
    grey = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25
    for name, shard in (("a", 1), ("b", 100)):
        colorize_job(grey, prior, tmp_path / name, samples=16, side=8, shard=shard)
    store = open_store(tmp_path / "a")
    assert store["colours"].shape == (20, 16, 3, 8, 8) and store["colours"].dtype == np.uint8
    assert store["difference"].max() < 1
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_job_says_how_plausible_its_sources_are(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["separate", "sample", "--count", "4", "--job", "--effort", "40", "--out", str(out)]
    assert main(words) == 0
    told = capsys.readouterr().out
    found = open_store(out)["plausibility"]
    alone = separate(draw_pairs(load_images("sample"), 4).mix((1.0, 1.0)), "mnist", effort=40)
    assert found == pytest.approx(alone.plausibility.numpy(), abs=1e-3)
    likely = int(alone.plausible.sum())
    assert f"plausible: {likely} of 4" in told and "/255 rms" in told
    assert json.loads((out / "run.json").read_text())["plausible"] == likely


def test_runs_and_jobs_do_not_mix_their_results(tmp_path, capsys):
    pictures, out = tmp_path / "pictures", tmp_path / "pictures" / "out"
    pictures.mkdir()
    words = ["mix", "sample:3", "sample:18", "--alphas", "0.5", "0.5"]
    assert main([*words, "--out", str(pictures / "m.png")]) == 0
    quick = ["--effort", "12", "--out", str(out)]
    assert main(["separate", str(pictures / "m.png"), *quick]) == 0
    assert "no weights were given" in capsys.readouterr().out
    assert (out / "m-source1.png").is_file()
    # What the first run wrote lies below the folder that the job reads, and is not read.
    assert main(["separate", str(pictures), *quick]) == 0
    told = capsys.readouterr().out
    assert "1 picture in" in told and "1 mixture separated" in told
    left = {p.name for p in out.iterdir()}
    assert {"store.json", "sources.npy", "panel.png"} < left
    assert not left & {"m-source1.png", "m-source2.png", "sources.npz"}
    assert main(["separate", str(pictures / "m.png"), *quick]) == 2
    assert "holds the results of a job" in capsys.readouterr().err
    assert {p.name for p in out.iterdir()} == left


def test_the_command_runs_jobs(tmp_path, capsys):
    words = ["separate", "sample", "--count", "5", "--job", "--effort", "12", "--shard", "1"]
    assert main([*words, "--out", str(tmp_path / "a"), "--pictures"]) == 0
    told = capsys.readouterr()
    assert "PSNR" in told.out and "5 mixtures separated" in told.out
    assert (tmp_path / "a" / "panel.png").is_file()
    assert len(list((tmp_path / "a" / "pictures").glob("*.png"))) == 10
    assert open_store(tmp_path / "a")["sources"].shape == (5, 2, 1, 28, 28)
    assert main([*words, "--out", str(tmp_path / "a"), "--seed", "1"]) == 2
    assert "holds another job" in capsys.readouterr().err


def test_the_command_takes_folders(tmp_path, capsys):
    from PIL import Image

    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        pixels = rng.integers(0, 255, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "in" / f"p{i}.png")
    (tmp_path / "in" / "q.png").write_bytes(b"no picture")
    words = ["separate", str(tmp_path / "in"), "--alphas", "0.5", "0.5", "--effort", "12"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert "1 of 4 could not be used" in capsys.readouterr().err
    assert open_store(tmp_path / "out").names == ["p0", "p1", "p2", "q"]


def test_the_command_fits_pictures_as_it_does_without_a_job(tmp_path, capsys):
    """Ink on paper, larger than the prior and saved as RGB: each is brought to what it needs."""
    from PIL import Image

    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for i, side in enumerate((28, 40)):
        grey = 255 - rng.integers(0, 60, (side, side), dtype=np.uint8)
        Image.fromarray(np.stack([grey] * 3, axis=-1)).save(tmp_path / "in" / f"p{i}.png")
    words = ["--alphas", "0.5", "0.5", "--effort", "12", "--invert", "--resize"]
    assert main(["separate", str(tmp_path / "in"), *words, "--out", str(tmp_path / "job")]) == 0
    files = [str(tmp_path / "in" / f"p{i}.png") for i in range(2)]
    assert main(["separate", *files, *words, "--out", str(tmp_path / "plain")]) == 0
    job = open_store(tmp_path / "job")["sources"]
    assert np.allclose(job, np.load(tmp_path / "plain" / "sources.npz")["sources"], atol=1e-3)
    # Of an array, too; what does not fit fails alone.
    given = rng.random((3, 1, 28, 28), dtype=np.float32) / 4
    given[1] += 2
    np.save(tmp_path / "many.npy", given)
    words = [*words, "--job", "--out", str(tmp_path / "array")]
    assert main(["separate", str(tmp_path / "many.npy"), *words]) == 0
    store = open_store(tmp_path / "array")
    assert list(store.failures) == [1] and "invert takes values" in store.failures[1]


def test_data_sets_are_clipped_and_rounded_as_without_a_job(tmp_path, capsys):
    words = ["separate", "sample", "--count", "3", "--effort", "12", "--clipped", "--rounded"]
    assert main([*words, "--out", str(tmp_path / "plain")]) == 0
    assert main([*words, "--job", "--out", str(tmp_path / "job")]) == 0
    plain = np.load(tmp_path / "plain" / "sources.npz")
    assert plain["mixture"].max() == 1
    assert np.allclose(open_store(tmp_path / "job")["sources"], plain["sources"], atol=1e-3)


@pytest.mark.parametrize("flags", [["--keep", "0.5"], ["--k", "unknown"]])
def test_what_a_job_does_not_do_is_told(tmp_path, capsys, flags):
    words = ["separate", "sample", "--count", "5", "--job", "--out", str(tmp_path / "a")]
    assert main([*words, *flags]) == 2
    told = capsys.readouterr().err
    assert "job" in told and told.count("\n") == 1 and not (tmp_path / "a").exists()


def test_many_names_take_no_time():
    began = time.perf_counter()
    stream = FileStream(
        [Path(f"{i % 2}/{i // 2}.png") for i in range(40_000)], lambda p: torch.zeros(1)
    )
    assert len(set(stream.names)) == 40_000
    assert time.perf_counter() - began < 5


def test_float64_and_float32_are_the_same_draws(prior, mixtures):
    both = [
        separate(mixtures[:4].to(dtype), prior.to(dtype=dtype), **SETTINGS)
        for dtype in (torch.float64, torch.float32)
    ]
    assert both[0].samples.dtype == torch.float64
    assert torch.allclose(both[0].samples.float(), both[1].samples, atol=1e-3)


def test_signals_end_a_job_in_order(mixtures, tmp_path):
    process = started(tmp_path, mixtures, tmp_path / "out", pause=30)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not (tmp_path / "out" / ".lock").exists()
