"""Stores are checked before their files are used: anybody may have edited them."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest
from jobs.conftest import SETTINGS

from basis.errors import BasisError
from basis.jobs.job import colorize_job, separate_job
from basis.jobs.store import Made, Shards, open_store


@pytest.fixture(scope="module")
def finished(prior, observations, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    separate_job(observations[:24], prior, out=folder, **SETTINGS)
    return folder


@pytest.mark.parametrize(
    "change",
    [{"files": {"../../etc.npy": "x"}}, {"files": {"/etc/passwd": "x"}}, {"files": {"a.npy": 1}},
     {"count": -1}, {"count": True}, {"count": 10**30}, {"count": 2**63}, {"failures": {"-1": "x"}},
     {"failures": {"99": "x"}}, {"failures": {"9" * 5000: "x"}}, {"failures": {"0" * 5000: "x"}},
     {"failures": {"0": None}}, {"failures": []}, {"job": None}],
)  # fmt: skip
def test_records_of_stores_are_checked(finished, tmp_path, change):
    record = json.loads((finished / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(record | change))
    with pytest.raises(BasisError, match="not the record of a job") as raised:
        open_store(tmp_path)
    assert len(str(raised.value)) < 1000 and "\n" not in str(raised.value)


def test_arrays_and_names_are_checked(finished, tmp_path):
    record = json.loads((finished / "store.json").read_text())
    record["files"]["names.txt"] = "x"
    (tmp_path / "store.json").write_text(json.dumps(record))
    store = open_store(tmp_path)
    with pytest.raises(BasisError, match="has no colors; it has"):
        store["colors"]
    with pytest.raises(BasisError, match="no file"):
        store["residual"]
    np.save(tmp_path / "residual.npy", np.zeros(3))
    with pytest.raises(BasisError, match="24 rows"):
        store["residual"]
    (tmp_path / "residual.npy").write_bytes(b"\x80\x02cos\nsystem\n.")
    with pytest.raises(BasisError, match="cannot be read"):
        store["residual"]
    for text in ("[1]", "{}", json.dumps(["a"] * 3), "[" * 9000):
        (tmp_path / "names.txt").write_text(text)
        with pytest.raises(BasisError):
            _ = store.names
    with pytest.raises(BasisError, match="no finished job"):
        open_store(tmp_path / "none")


def test_stores_of_the_previous_version_are_read_and_not_continued(
    prior, observations, tmp_path, capsys
):
    sources = np.arange(8, dtype=np.float32).reshape(2, 1, 1, 2, 2)
    np.save(tmp_path / "sources.npy", sources)
    digest = hashlib.sha256((tmp_path / "sources.npy").read_bytes()).hexdigest()
    record = {
        "count": 2,
        "failures": {"1": "holds NaN or infinite values"},
        "files": {"sources.npy": digest},
        "job": "0" * 64,
        "settings": {
            "chains": 128, "plausibility": False, "samples_kept": False, "seed": 0,
            "sampler": {"name": "gibbs", "steps": 4, "samples": 1, "choose": "first"},
            "versions": {"basis": "0.19.0", "torch": "2.6.0"},
        },
        "task": "separate",
    }  # fmt: skip
    (tmp_path / "store.json").write_text(json.dumps(record))
    store = open_store(tmp_path)
    assert np.array_equal(store["sources"], sources) and not store.damaged()
    assert list(store.failures) == [1]
    with pytest.raises(BasisError, match="holds another job") as raised:
        separate_job(observations[:2], prior, out=tmp_path, **SETTINGS)
    assert "\n" not in str(raised.value)


def test_a_store_with_another_count_is_made_again(prior, observations, tmp_path, capsys):
    separate_job(observations[:4], prior, out=tmp_path, **SETTINGS)
    record = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(record | {"count": 2**40}))
    assert len(separate_job(observations[:4], prior, out=tmp_path, **SETTINGS)) == 4
    assert "made again" in capsys.readouterr().err


def test_a_pipe_in_place_of_a_shard_is_not_waited_for(tmp_path):
    shards = Shards(tmp_path, "job", 2, 1)
    shards.write(0, Made({"a": np.ones((1, 2))}, {0: "reason"}))
    os.mkfifo(shards.path(1))
    found = shards.read(0)
    assert found.failures == {0: "reason"} and found.arrays["a"].sum() == 2
    assert shards.check() == ({0}, 1) and not shards.path(1).exists()


def test_folders_that_are_missing_are_named(prior, observations):
    for use in (
        lambda: separate_job(observations[:2], prior),
        lambda: separate_job(observations[:2], prior, out=3),
        lambda: colorize_job(observations[:2], prior),
        lambda: open_store(None),
    ):
        with pytest.raises(BasisError, match=r"give the folder, such as (out|folder)='runs/mine'"):
            use()


def test_unlikely_sources_of_a_store_are_counted(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    values = np.linspace(0.01, 0.9, 24, dtype=np.float32)
    np.save(tmp_path / "copy" / "plausibility.npy", values)
    text = str(open_store(tmp_path / "copy"))
    assert "plausibility 0.01 to 0.9" in text and "plausible" not in text
    assert "warning: unlikely sources in 1 of 24" in text
