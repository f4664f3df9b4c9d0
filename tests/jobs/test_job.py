"""Jobs: the same store however they are cut, and whatever happens to them."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from jobs.conftest import COUNT, SETTINGS, contents, run_record, stopping_after

from basis import linear
from basis._separate import separate
from basis.errors import BasisError
from basis.jobs.identity import described
from basis.jobs.job import colorize_job, separate_job
from basis.jobs.store import open_store
from basis.jobs.streams import ArrayStream
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.samplers.gibbs import Gibbs


@pytest.mark.parametrize(("shard", "cores"), [(1, 1), (40, 2), (1000, 1)])
def test_the_store_does_not_depend_on_shards_or_threads(
    prior, observations, undisturbed, tmp_path, shard, cores
):
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        separate_job(observations, prior, out=tmp_path, shard=shard, **SETTINGS)
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    assert contents(tmp_path) == undisturbed


def test_a_job_separates_as_separate_does(prior, observations, tmp_path):
    store = separate_job(observations, prior, out=tmp_path, seed=3, **SETTINGS)
    whole = separate(observations, prior, seed=3, **SETTINGS)
    assert np.allclose(store["sources"], whole.sources.numpy(), atol=1e-4)
    assert np.allclose(store["samples"], whole.samples.numpy(), atol=1e-4)
    # The repeated observation gets another sample, though the two are in different shards.
    assert not np.allclose(store["samples"][140], store["samples"][3], atol=1e-3)
    assert "samples" in repr(store) and len(store) == COUNT


@pytest.mark.parametrize("shards", [1, 4])
def test_an_interrupted_job_is_resumed(prior, observations, undisturbed, tmp_path, shards):
    stop = stopping_after(shards)
    with pytest.raises(KeyboardInterrupt):
        separate_job(observations, prior, out=tmp_path, shard=32, progress=stop, **SETTINGS)
    assert not (tmp_path / "store.json").exists()
    assert len(list((tmp_path / "shards").glob("0*.npz"))) == shards
    (tmp_path / ".sources-x.npy").write_bytes(b"half")  # what a killed process was about to write
    # Another size of shards does not matter: those that are there count.
    done = []
    separate_job(
        observations, prior, out=tmp_path, shard=64, progress=lambda p: done.append(p.done),
        **SETTINGS,
    )  # fmt: skip
    assert done[0] == 32 * shards and done[-1] == COUNT
    assert contents(tmp_path) == undisturbed and run_record(tmp_path)["shards"] == 5


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap", "folder"])
def test_a_damaged_shard_is_made_again(prior, observations, undisturbed, tmp_path, harm):
    stop = stopping_after(2)
    with pytest.raises(KeyboardInterrupt):
        separate_job(observations, prior, out=tmp_path, shard=32, progress=stop, **SETTINGS)
    first, second = sorted((tmp_path / "shards").glob("0*.npz"))[:2]
    data = bytearray(first.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    elif harm == "swap":
        data = bytearray(second.read_bytes())
    if harm == "folder":
        first.unlink()
        first.mkdir()
    else:
        first.write_bytes(data[: {"cut": 100, "empty": 0}.get(harm, len(data))])
    separate_job(observations, prior, out=tmp_path, **SETTINGS)
    assert contents(tmp_path) == undisturbed
    assert run_record(tmp_path)["shards_damaged"] == 1


def test_a_finished_job_is_not_run_again(prior, observations, tmp_path):
    separate_job(observations[:40], prior, out=tmp_path, **SETTINGS)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    separate_job(observations[:40], prior, out=tmp_path, **SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_a_damaged_store_is_made_again(prior, observations, tmp_path, capsys):
    separate_job(observations[:8], prior, out=tmp_path, **SETTINGS)
    whole = contents(tmp_path)
    (tmp_path / "sources.npy").write_bytes(whole["sources.npy"][:-1] + b"x")
    assert open_store(tmp_path).damaged() == ["sources.npy"]
    separate_job(observations[:8], prior, out=tmp_path, **SETTINGS)
    assert "made again" in capsys.readouterr().err
    assert contents(tmp_path) == whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed 0 -> 1"),
        ({"method": Gibbs(steps=5)}, "method.steps 4 -> 5"),
        ({"alphas": (1.0, 0.5)}, "alphas null -> "),
        ({"samples": 3}, "samples 4 -> 3"),
        ({"noise": 0.1}, "noise 0.0 -> 0.1"),
    ],
)
def test_another_job_in_the_same_folder_is_an_error(prior, observations, tmp_path, change, words):
    few = observations[:4]
    separate_job(few, prior, out=tmp_path, **SETTINGS)
    before = contents(tmp_path)
    with pytest.raises(BasisError, match=words):
        separate_job(few, prior, out=tmp_path, **{**SETTINGS, **change})
    with pytest.raises(BasisError, match="other observations"):
        separate_job(few + 0.01, prior, out=tmp_path, **SETTINGS)
    with pytest.raises(BasisError, match="count 4 -> 5"):
        separate_job(observations[:5], prior, out=tmp_path, **SETTINGS)
    assert contents(tmp_path) == before


def test_changed_functions_of_the_user_are_noticed(observations, tmp_path):
    """Functions have no checksum: they are applied to a fixed input."""
    few = observations[:2]

    def run(denoise=lambda x, s: 0.5 * x, forward=lambda x: x.sum(dim=1)):
        prior = Prior.from_denoiser(denoise, (1, 4, 4), 0.01, 10.0)
        mixing = linear(forward, sources=2)
        separate_job(few, prior, out=tmp_path, mixing=mixing, method=Gibbs(steps=2))

    run()
    run()  # equal functions are the same job
    for denoise in (
        lambda x, s: 0.501 * x,
        lambda x, s: 0.5 * x.roll(1, dims=-1),
        lambda x, s: 0.5 * x if s[0] < 5 else 0.4 * x,
        lambda x, s: 0.5 * x if s[0] > 0.05 else 0.4 * x,
    ):
        with pytest.raises(BasisError, match=r"priors\.probe"):
            run(denoise)
    for forward in (
        lambda x: 1.001 * x.sum(dim=1),
        lambda x: x.sum(dim=1).roll(1, dims=-1),
        lambda x: x[:, 0] + x[:, 1].roll(1, dims=-1),
    ):
        with pytest.raises(BasisError, match=r"mixing\.(forward|probe)"):
            run(forward=forward)


def test_maps_and_adjoints_of_the_user_are_part_of_a_job():
    def forward(scale, shift):
        return lambda x: scale * (x[:, 0] + x[:, 1].roll(shift, dims=-1))

    def adjoint(scale, shift):
        return lambda m: scale * torch.stack([m, m.roll(-shift, dims=-1)], dim=1)

    def probe(mixing):
        return described(mixing, (1, 4, 4))["probe"]

    changes = [(1.0, 0), (1.001, 0), (1.0, 1), (1.0, 2)]
    alone = [probe(linear(forward(*change))) for change in changes]
    both = [probe(linear(forward(*change), adjoint(*change))) for change in changes]
    assert alone == both and len({str(one) for one in alone}) == len(changes)
    assert probe(linear(forward(1.0, 1))) == alone[2]


def test_observations_with_nan_fail_alone(prior, observations, undisturbed, tmp_path):
    harmed = observations.clone()
    harmed[5, 0, 0, 0] = float("nan")
    harmed[64:100] = float("inf")  # more than a block, and all of a shard of one block
    store = separate_job(harmed, prior, out=tmp_path, shard=1, **SETTINGS)
    bad = [5, *range(64, 100)]
    assert sorted(store.failures) == bad
    assert np.isnan(store["sources"][bad]).all() and np.isnan(store["residual"][bad]).all()
    good = [i for i in range(COUNT) if i not in bad]
    (tmp_path / "whole.npy").write_bytes(undisturbed["sources.npy"])
    assert np.array_equal(store["sources"][good], np.load(tmp_path / "whole.npy")[good])
    with pytest.raises(BasisError, match="none of the 3"):
        separate_job(harmed[64:67], prior, out=tmp_path / "none", **SETTINGS)


def test_an_observation_that_no_sources_can_make_fails_alone(observations, tmp_path):
    bounded = GaussianMixture(torch.zeros(1, 1, 4, 4), torch.ones(1), value_range=(0.0, 1.0))
    harmed = observations.clamp(0, 2)[:40]
    harmed[3] = 255.0
    store = separate_job(harmed, bounded, out=tmp_path, **SETTINGS)
    assert list(store.failures) == [3] and "255" in store.failures[3]
    assert np.isfinite(np.delete(store["sources"], 3, axis=0)).all()


def test_files_that_cannot_be_read_fail_alone(prior, observations, tmp_path):
    paths = [tmp_path / f"{i}.npy" for i in range(6)]
    for path, item in zip(paths, observations, strict=False):
        np.save(path, item[0].numpy())
    paths[2].write_bytes(b"nothing")
    np.save(paths[4], np.zeros((5, 5), dtype=np.float32))
    store = separate_job(paths, prior, out=tmp_path / "out", **SETTINGS)
    assert sorted(store.failures) == [2, 4] and store.names == list("012345")
    assert "(1, 5, 5)" in store.failures[4]


def test_arrays_on_disk_are_read_in_pieces(prior, observations, undisturbed, tmp_path, monkeypatch):
    np.save(tmp_path / "many.npy", observations.numpy())
    read = []
    original = ArrayStream.read

    def counted(self, start, stop):
        read.append(stop - start)
        return original(self, start, stop)

    monkeypatch.setattr(ArrayStream, "read", counted)
    out = tmp_path / "out"
    separate_job(tmp_path / "many.npy", prior, out=out, shard=32, **SETTINGS)
    assert contents(out) == undisturbed
    assert max(read) <= 256 and sum(size == 32 for size in read) == 4


def test_photos_are_colorized_as_a_job(tmp_path):
    prior = GaussianMixture(
        torch.full((1, 3, 8, 8), 0.5), torch.tensor([0.05]), value_range=(0.0, 1.0)
    )
    gray = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25
    for name, shard in (("a", 1), ("b", 100)):
        colorize_job(gray, prior, samples=16, out=tmp_path / name, size=8, shard=shard)
    store = open_store(tmp_path / "a")
    assert store["colors"].shape == (20, 16, 3, 8, 8) and store["colors"].dtype == np.uint8
    assert store["difference"].max() < 1
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_bad_arguments_are_one_line(prior, observations, tmp_path):
    few = observations[:2]
    for words, arguments in (
        ("not both", {"workers": 2, "scheduler": "x"}),
        ("scheduler", {"scheduler": "no address"}),
        ("first must be", {"method": "first must be"}),
    ):
        with pytest.raises(BasisError) as raised:
            separate_job(few, prior, out=tmp_path / words, **{**SETTINGS, **arguments})
        assert words in str(raised.value) and "\n" not in str(raised.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BasisError, match="no pictures"):
        separate_job(tmp_path / "empty", prior, out=tmp_path / "out")


# Damage and other processes ---------------------------------------------------------------------

SCRIPT = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
from jobs.conftest import SETTINGS, make_observations, make_prior
from basis import separate_job
# A process that a shell started in the background ignores it, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def progress(p):
    print(p.done, flush=True)
    time.sleep(30)

prior = make_prior()
separate_job(make_observations(prior), prior, out=sys.argv[2], progress=progress, **SETTINGS)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_signals_and_the_lock(prior, observations, undisturbed, tmp_path, ending):
    """A second process is refused while the first one runs, and not after it was killed."""
    out, tests = tmp_path / "store", os.path.dirname(os.path.dirname(__file__))
    words = [sys.executable, "-c", SCRIPT, tests, str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline().strip() == b"0"
        with pytest.raises(BasisError, match="in use"):
            separate_job(observations, prior, out=out, **SETTINGS)
        process.send_signal(ending)
        assert process.wait(60) != 0
    separate_job(observations, prior, out=out, **SETTINGS)
    assert contents(out) == undisturbed


@pytest.fixture
def stopped(prior, observations, tmp_path):
    """The folder of a job that was stopped after one shard of two, and how it is resumed."""
    few = observations[:40]
    with pytest.raises(KeyboardInterrupt):
        separate_job(few, prior, out=tmp_path, shard=8, progress=stopping_after(1), **SETTINGS)
    return tmp_path, lambda: separate_job(few, prior, out=tmp_path, shard=8, **SETTINGS)


@pytest.mark.parametrize(
    "text", ["[" * 9000, "[]", "x", '{"job": 1}', "\x00", '"shard": "x"', '"shard": 3']
)
def test_a_damaged_record_of_a_job_is_one_line(stopped, text):
    folder, resume = stopped
    whole = (folder / "job.json").read_text()
    own = text.startswith('"shard')
    (folder / "job.json").write_text(whole.replace('"shard": 32', text) if own else text)
    with pytest.raises(BasisError, match="give another out") as raised:
        resume()
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("name", ["sources.npy", "store.json", "job.json", "shards"])
def test_pipes_in_place_of_results_are_refused(prior, observations, tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(BasisError, match=f"{name} is not"):
        separate_job(observations[:2], prior, out=tmp_path, **SETTINGS)


@pytest.mark.parametrize("begun", [False, True])
def test_a_linked_folder_of_shards_is_refused(stopped, tmp_path_factory, begun):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".mine.npz").write_text("mine\n")
    folder, resume = stopped
    shutil.rmtree(folder / "shards")
    if not begun:
        (folder / "job.json").unlink()
    (folder / "shards").symlink_to(elsewhere)
    with pytest.raises(BasisError, match="shards is a symbolic link; remove it"):
        resume()
    assert [path.name for path in elsewhere.iterdir()] == [".mine.npz"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_one_line(prior, observations, undisturbed, small_disk):
    with pytest.raises(BasisError, match="has room for") as raised:
        separate_job(observations.repeat(20, 1, 1, 1), prior, out=small_disk / "a", **SETTINGS)
    assert "\n" not in str(raised.value)
    shutil.rmtree(small_disk / "a")

    def fill(p):
        if p.now:  # another process takes the room while the job is at work
            with open(small_disk / "other", "ab") as file:
                file.write(bytes(os.statvfs(small_disk).f_bavail * 4096))

    out = small_disk / "store"
    with pytest.raises(BasisError, match=r"(?s)cannot write .*same command") as raised:
        separate_job(observations, prior, out=out, shard=32, progress=fill, **SETTINGS)
    assert "\n" not in str(raised.value)
    (small_disk / "other").unlink()
    separate_job(observations, prior, out=out, **SETTINGS)
    assert contents(out) == undisturbed
