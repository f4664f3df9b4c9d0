"""A job whose own files were damaged: it goes on, or says in one line why not; it never hangs."""

import json
import multiprocessing
import os
import shutil
import sys
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from test_cli import fails as refused
from test_hostile import in_time
from test_jobs import stopping_after

from basis._mix import draw_indices, draw_pairs
from basis.cli import main
from basis.errors import BasisError
from basis.jobs.job import separate_job
from basis.jobs.store import open_store
from basis.priors.gaussian import GaussianMixture
from basis.signals.places import ImageSet

SETTINGS = {"sampler": "gibbs", "steps": 2, "samples": 16}
PIPES = pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")


@pytest.fixture(scope="module")
def mixtures():
    return torch.rand(24, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def prior():
    return GaussianMixture(torch.rand(2, 1, 4, 4), torch.full((2,), 0.1), value_range=(0.0, 1.0))


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


# Links -------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path_factory):
    """A folder outside of every output, with a file that a job would take for one of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / ".mine.safetensors").write_text("mine\n")
    yield folder
    assert [path.name for path in folder.iterdir()] == [".mine.safetensors"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_linked_folder_of_shards_is_refused(stopped, elsewhere, begun):
    folder, go_on = stopped
    shutil.rmtree(folder / "shards")
    if not begun:
        (folder / "job.json").unlink()
    (folder / "shards").symlink_to(elsewhere)
    with pytest.raises(BasisError, match="shards is a symbolic link; remove it"):
        go_on()
    assert (folder / "shards").is_symlink()


def test_a_linked_folder_of_pictures_is_refused_before_the_work(
    tmp_path, elsewhere, capsys, monkeypatch
):
    (tmp_path / "pictures").symlink_to(elsewhere)
    monkeypatch.setattr("basis.jobs.separate_job", lambda *a, **s: pytest.fail("ran"))
    words = ["separate", "sample", "--count", "2", "--job", "--pictures", "--out", tmp_path]
    assert "pictures is a symbolic link" in refused(capsys, *words)


def test_linked_folders_of_other_runs_are_refused(tmp_path, elsewhere, capsys):
    (tmp_path / "level-03").symlink_to(elsewhere)
    (tmp_path / "cache").symlink_to(elsewhere)
    words = ["ladder", "--data", "sample", "--first", "128", "--each", "128", "--out", tmp_path]
    assert "level-03 is a symbolic link" in refused(capsys, *words)
    again = ["reproduce", "teaser", "--data", "sample", "--out", tmp_path]
    assert "cache is a symbolic link" in refused(capsys, *again)


# Folders of pictures -----------------------------------------------------------------------------

QUICK = ["--job", "--prior", "mnist", "--sampler", "gibbs", "--steps", "2", "--samples", "1"]


@pytest.fixture
def folder_job(tmp_path, capsys):
    """Separates one good picture and one broken one of this name; returns what was printed."""
    (tmp_path / "in").mkdir()
    Image.new("L", (28, 28), 90).save(tmp_path / "in" / "good.png")

    def run(name):
        with open(os.path.join(os.fsencode(tmp_path / "in"), name), "wb") as file:
            file.write(b"no picture")
        assert main(["separate", str(tmp_path / "in"), *QUICK, "--out", str(tmp_path / "o")]) == 0
        return capsys.readouterr()

    return run


@PIPES
def test_names_of_broken_pictures_do_not_reach_the_terminal_as_codes(folder_job, tmp_path):
    told = folder_job(b"a\x1b]0;title\x07\x1b[2J.png")
    assert "1 of 2 could not be used" in told.err and "\\x1b]0;title\\x07" in told.err
    assert not {"\x1b", "\x07"} & set(told.err + told.out)
    # The failures of a store are text that anybody may have edited.
    record = json.loads((tmp_path / "o" / "store.json").read_text())
    record["failures"] = dict.fromkeys(record["failures"], "x\x1b[2J\nbasis: all is well")
    (tmp_path / "o" / "store.json").write_text(json.dumps(record))
    told = folder_job(b"a\x1b]0;title\x07\x1b[2J.png")
    assert "\\x1b[2J\\nbasis: all is well" in told.err and "\x1b" not in told.err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="file names of any bytes")
def test_a_broken_picture_with_a_name_of_other_bytes_fails_alone(folder_job, tmp_path):
    assert "1 of 2 could not be used" in folder_job(b"bad\xff.png").err
    assert len(open_store(tmp_path / "o").failures) == 1


@pytest.mark.parametrize(
    "change",
    [{"count": 10**30}, {"count": 2**63}, {"failures": {"9" * 5000: "x"}},
     {"failures": {"0" * 5000: "x"}}],
)  # fmt: skip
def test_huge_numbers_in_the_record_of_a_store_are_refused(mixtures, tmp_path, change):
    torch.manual_seed(0)
    own = prior()
    separate_job(mixtures, own, tmp_path, **SETTINGS)
    record = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(record | change))
    with pytest.raises(BasisError, match="not the record of a job") as told:
        separate_job(mixtures, own, tmp_path, **SETTINGS)
    assert len(str(told.value)) < 1000 and "\n" not in str(told.value)


def test_a_store_of_another_number_of_mixtures_is_made_again(mixtures, tmp_path, capsys):
    torch.manual_seed(0)
    own = prior()
    separate_job(mixtures, own, tmp_path, **SETTINGS)
    record = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(record | {"count": 2**40}))
    assert len(separate_job(mixtures, own, tmp_path, **SETTINGS)) == 24
    assert "made again" in capsys.readouterr().err


# Workers -----------------------------------------------------------------------------------------


def test_local_workers_listen_on_no_port(mixtures, tmp_path):
    psutil = pytest.importorskip("psutil")
    listening, alive = [], []

    def look(progress):
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            found = process.net_connections(kind="tcp")
            listening.extend(c.laddr for c in found if c.status == psutil.CONN_LISTEN)
            alive.append(process.pid)

    before = {c.laddr for c in psutil.Process().net_connections(kind="tcp")}
    store = separate_job(mixtures, prior(), tmp_path, workers=1, progress=look, **SETTINGS)
    assert len(store) == 24 and len(set(alive)) > 1
    assert set(listening) <= before


class Fatal(GaussianMixture):
    """Ends the process that asks it."""

    def denoise(self, x, sigma):
        os._exit(3)


def test_a_shard_that_ends_every_worker_is_given_up(mixtures, tmp_path, monkeypatch):
    from basis.jobs import engines

    monkeypatch.setattr(engines, "TRIES", 2)
    fatal = Fatal(torch.rand(2, 1, 4, 4), torch.full((2,), 0.1), value_range=(0.0, 1.0))
    with pytest.raises(BasisError, match="shard 0 was given to workers 2 times"):
        separate_job(mixtures, fatal, tmp_path, workers=1, **SETTINGS)
    assert not multiprocessing.active_children()


def test_priors_that_cannot_be_sent_to_workers_are_one_line(mixtures, tmp_path):
    own = prior()
    own.lock = threading.Lock()
    with pytest.raises(BasisError, match="cannot be sent to worker processes") as told:
        separate_job(mixtures, own, tmp_path, workers=1, **SETTINGS)
    assert "\n" not in str(told.value)
