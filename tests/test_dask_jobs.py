"""Jobs on Dask workers: lost workers and schedulers cost time and nothing else."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
from test_jobs import SETTINGS, contents, mixtures, prior, run_record, undisturbed  # noqa: F401

from basis.errors import BasisError
from basis.jobs import recipe
from basis.jobs.job import separate_job

pytest.importorskip("distributed")


def children(of):
    """The processes that a process started, with those that they started."""
    import psutil

    return psutil.Process(of).children(recursive=True)


def workers_of(of):
    return [p for p in children(of) if "spawn_main" in " ".join(p.cmdline())]


def test_local_workers_make_the_same_store(prior, mixtures, undisturbed, tmp_path):  # noqa: F811
    """One of two workers is killed on the way."""
    killed = []

    def progress(p):
        if p.now and not killed:
            killed.append(workers_of(os.getpid())[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    separate_job(
        mixtures, prior, tmp_path, shard=1, workers=2, device="auto", progress=progress, **SETTINGS
    )
    assert killed
    assert contents(tmp_path) == undisturbed
    assert run_record(tmp_path)["shards"] == 5


@contextlib.contextmanager
def dask_process(*words):
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_scheduler_may_come_back(prior, mixtures, undisturbed, tmp_path):  # noqa: F811
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    scheduling = ("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    working = ("dask_worker", address, "--nworkers", "1", "--nthreads", "1", "--no-dashboard")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(dask_process(*scheduling))
        stack.enter_context(dask_process(*working, "--death-timeout", "300"))
        done = []

        def restart():
            first.kill()
            first.wait()
            stack.enter_context(dask_process(*scheduling))
            stack.enter_context(dask_process(*working))

        def progress(p):
            if p.now and not done:
                done.append(threading.Thread(target=restart))
                done[0].start()

        separate_job(
            mixtures, prior, tmp_path, shard=1, scheduler=address, device="auto",
            progress=progress, **SETTINGS,
        )  # fmt: skip
        done[0].join()
    assert contents(tmp_path) == undisturbed


def test_a_scheduler_that_is_not_there(prior, mixtures, tmp_path, monkeypatch):  # noqa: F811
    from basis.jobs import dask_engine

    monkeypatch.setattr(dask_engine, "FIRST_PATIENCE", 1.0)
    began = time.monotonic()
    with pytest.raises(BasisError, match="no Dask scheduler answers") as told:
        separate_job(mixtures, prior, tmp_path, scheduler="tcp://127.0.0.1:9", **SETTINGS)
    assert "\n" not in str(told.value) and time.monotonic() - began < 60
    with pytest.raises(BasisError, match="is no address"):
        separate_job(mixtures, prior, tmp_path, scheduler="no address", **SETTINGS)
    with pytest.raises(BasisError, match="not both"):
        separate_job(mixtures, prior, tmp_path, scheduler="x", workers=2, **SETTINGS)


def test_a_gpu_worker_uses_its_gpu(monkeypatch):
    assert recipe.own_device("auto") == ("cuda:0" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert recipe.own_device("auto") == "cuda:0"  # what Dask's own tools made visible
    assert [recipe.own_device("auto", n) for n in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert recipe.own_device("cpu", 1) == "cpu"


def test_several_gpus_are_used_by_default(monkeypatch):
    from basis.jobs.engines import ProcessEngine, ThreadEngine
    from basis.jobs.job import choose_engine

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    engine = choose_engine(None, None, "cuda")
    assert isinstance(engine, ProcessEngine) and engine.count == 3
    assert isinstance(choose_engine(None, None, "cpu"), ThreadEngine)


def test_a_worker_loads_a_prior_once_and_the_right_one(monkeypatch):
    from basis.store.loading import load_prior

    loads = []

    def counted(*words, **options):
        loads.append(words)
        return load_prior(*words, **options)

    monkeypatch.setattr(recipe, "load_prior", counted)
    right = load_prior("mnist").card.sha256
    recipe = recipe.Recipe("separate", ("mnist",), (28, 28), 4, checksums=(right,))
    for _ in range(3):
        recipe.load_priors(recipe, "cpu")
    assert len(loads) == 1
    wrong = recipe.Recipe("separate", ("mnist",), (30, 30), 4, checksums=("0" * 64,))
    with pytest.raises(BasisError, match="other weights here"):
        recipe.load_priors(wrong, "cpu")
