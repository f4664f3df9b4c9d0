"""A job whose own files were damaged: it goes on, or says in one line why not; it never hangs."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from test_hostile import in_time
from test_jobs import stopping_after

from basis import BasisError, GaussianMixture
from basis.cli import main
from basis.data import ImageSet
from basis.jobs import open_store, separate_job
from basis.pairs import draw_indices, draw_pairs
from basis.studies import ShardTimes, read_times, simulate

SETTINGS = {"sampler": "gibbs", "steps": 2, "samples": 16}
PIPES = pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")


@pytest.fixture(scope="module")
def mixtures():
    return torch.rand(24, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def prior():
    return GaussianMixture(torch.rand(2, 1, 4, 4), torch.full((2,), 0.1), low=0.0, high=1.0)


@pytest.fixture
def stopped(mixtures, tmp_path):
    """The folder of a job that was stopped after two shards of three, and how it goes on."""
    torch.manual_seed(0)
    own = prior()
    with pytest.raises(KeyboardInterrupt):
        separate_job(mixtures, own, tmp_path, shard=8, progress=stopping_after(2), **SETTINGS)
    return tmp_path, lambda: separate_job(mixtures, own, tmp_path, shard=8, **SETTINGS)


@pytest.mark.parametrize(
    "line",
    [b"\xe7\xff", b'{"done": 1}', b'{"done": "x", "seconds": 1, "write": 1}', b"[" * 9000,
     b'{"started": 99}', b'{"done": 0, "seconds": NaN, "write": -1}', b"null"],
)  # fmt: skip
def test_rows_of_the_log_that_are_none_are_left_out(stopped, line):
    folder, go_on = stopped
    with open(folder / "shards" / "log.jsonl", "ab") as file:
        file.write(line + b"\n")
    assert len(go_on()) == 24
    record = json.loads((folder / "run.json").read_text())
    assert record["shards_started"] >= 3 and len(record["shard_seconds"]) >= 2
    assert all(0 <= seconds < 1e6 for seconds in record["shard_seconds"])


@PIPES
def test_a_pipe_in_place_of_the_log_or_a_shard_is_not_waited_for(stopped):
    folder, go_on = stopped
    (folder / "shards" / "log.jsonl").unlink()
    os.mkfifo(folder / "shards" / "log.jsonl")
    (folder / "shards" / "000000.safetensors").unlink()
    os.mkfifo(folder / "shards" / "000000.safetensors")
    (folder / "shards" / "000001.safetensors").unlink()
    (folder / "shards" / "000001.safetensors").mkdir()
    assert in_time(60, go_on) is None
    assert len(open_store(folder)) == 24


def test_the_log_does_not_lead_elsewhere(stopped, tmp_path_factory):
    folder, go_on = stopped
    other = tmp_path_factory.mktemp("other") / "log.jsonl"
    other.write_text("mine\n")
    (folder / "shards" / "log.jsonl").unlink()
    (folder / "shards" / "log.jsonl").symlink_to(other)
    go_on()
    assert other.read_text() == "mine\n"


@PIPES
@pytest.mark.parametrize("name", ["sources.npy", "store.json", "job.json", "shards"])
def test_a_pipe_in_place_of_a_result_is_refused_before_the_work(mixtures, tmp_path, name):
    os.mkfifo(tmp_path / name)
    found = in_time(60, lambda: separate_job(mixtures, prior(), tmp_path, **SETTINGS))
    assert isinstance(found, BasisError) and name in str(found) and "remove it" in str(found)


@pytest.mark.parametrize("shard", ["x", 0, -8, 3, 1.5, True, 10**30, None])
def test_a_size_of_shards_that_is_none(stopped, shard):
    # A size that is no whole number of blocks would round differently.
    folder, go_on = stopped
    record = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(record | {"shard": shard}))
    if shard == 10**30:  # odd, and possible
        assert len(go_on()) == 24
    else:
        with pytest.raises(BasisError, match=r"job\.json is damaged"):
            go_on()


@pytest.mark.parametrize("text", ["[" * 9000, "[]", "x", '{"job": 1}', "\x00"])
def test_a_job_that_is_none(stopped, text):
    folder, go_on = stopped
    (folder / "job.json").write_text(text)
    with pytest.raises(BasisError) as told:
        go_on()
    assert "\n" not in str(told.value)


@pytest.fixture
def finished(mixtures, tmp_path):
    torch.manual_seed(0)
    separate_job(mixtures, prior(), tmp_path, **SETTINGS)
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [{"files": {"../../etc.npy": "x"}}, {"files": {"/etc/passwd": "x"}}, {"files": {"a.npy": 1}},
     {"count": -1}, {"count": True}, {"failures": {"-1": "x"}}, {"failures": {"99": "x"}},
     {"failures": {"0": None}}, {"failures": []}, {"job": None}],
)  # fmt: skip
def test_records_of_stores_are_checked(finished, change):
    record = json.loads((finished / "store.json").read_text())
    (finished / "store.json").write_text(json.dumps(record | change))
    with pytest.raises(BasisError, match="not the record of a job"):
        open_store(finished)


def test_arrays_of_stores_are_checked(finished):
    store = open_store(finished)
    np.save(finished / "residual.npy", np.zeros(3))
    with pytest.raises(BasisError, match="24 rows"):
        store["residual"]
    (finished / "residual.npy").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(BasisError, match="cannot be read"):
        store["residual"]
    (finished / "residual.npy").unlink()
    with pytest.raises(BasisError, match="no file"):
        store["residual"]


def test_names_of_stores_are_checked(finished):
    store = open_store(finished)
    store.about["files"]["names.txt"] = "x"
    for text in ("[1]", "{}", json.dumps(["a"] * 3), "[" * 9000):
        (finished / "names.txt").write_text(text)
        with pytest.raises(BasisError):
            _ = store.names


def test_huge_counts_are_refused_at_once():
    images = ImageSet(torch.zeros(24, 1, 8, 8, dtype=torch.uint8), None, "some", "a test")
    for count in (2**63 - 1, 10**8):
        found = in_time(20, lambda count=count: draw_indices(images, count))
        assert isinstance(found, BasisError) and "at most 10,000,000" in str(found)
    large = ImageSet(torch.zeros(2, 3, 512, 512, dtype=torch.uint8), None, "some", "a test")
    found = in_time(20, lambda: draw_pairs(large, 9_000_000))
    assert isinstance(found, BasisError) and "GB of memory" in str(found)


def test_as_many_sources_as_images_are_drawn():
    images = ImageSet(torch.zeros(24, 1, 8, 8, dtype=torch.uint8), None, "some", "a test")
    assert in_time(20, lambda: draw_indices(images, 50, k=24)) is None
    assert (draw_indices(images, 3, k=24).sort(dim=1).values == torch.arange(24)).all()


TIMES = ShardTimes((10.0,), (0.01,), 64)


@pytest.mark.parametrize("losses", [float("inf"), float("nan"), -1.0, 1e9])
def test_workers_that_finish_nothing_are_not_simulated(losses):
    found = in_time(20, lambda: simulate(TIMES, 10, 6400, losses=losses))
    assert isinstance(found, BasisError) and "finish no shard" in str(found)


def test_simulations_have_an_end():
    for workers, separations in ((10, 2**62), (2**62, 10)):
        found = in_time(20, lambda w=workers, s=separations: simulate(TIMES, w, s))
        assert isinstance(found, BasisError) and "too many to simulate" in str(found)


@pytest.mark.parametrize(
    "change",
    [{"shard_seconds": [float("nan")]}, {"write_seconds": [0]}, {"mixtures": 10**30},
     {"shard_seconds": []}, {"write_seconds": [1e300]}, {"shards": 0}, {"shards": "x"}],
)  # fmt: skip
def test_times_that_are_none(tmp_path, change):
    times = {"shard_seconds": [9], "write_seconds": [0.01], "mixtures": 128, "shards": 2}
    (tmp_path / "run.json").write_text(json.dumps(times | change))
    with pytest.raises(BasisError) as told:
        read_times(tmp_path)
    assert "\n" not in str(told.value)


def test_more_workers_than_a_machine_can_start(capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["separate", "sample", "--job", "--workers", "999999", "--out", str(tmp_path)])
    assert stop.value.code == 2 and "at most" in capsys.readouterr().err
