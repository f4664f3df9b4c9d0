"""Jobs on processes and on Dask: lost workers cost time and nothing else."""

import multiprocessing
import os
import signal
import threading

import pytest
import torch
from jobs.conftest import SETTINGS, contents

from basis.errors import BasisError
from basis.jobs import work, workers
from basis.jobs.job import separate_job
from basis.priors.gaussian import GaussianMixture


def test_processes_make_the_same_store(prior, observations, undisturbed, tmp_path):
    """One of two workers is killed on the way; none of them listens on a port."""
    psutil = pytest.importorskip("psutil")
    killed, listening = [], []

    def progress(p):
        children = multiprocessing.active_children()
        for child in children:
            found = psutil.Process(child.pid).net_connections(kind="tcp")
            listening.extend(c.laddr for c in found if c.status == psutil.CONN_LISTEN)
        if p.now and not killed:
            killed.append(children[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    separate_job(
        observations, prior, out=tmp_path, shard=1, workers=2, device="auto", progress=progress,
        **SETTINGS,
    )  # fmt: skip
    assert killed and not listening
    assert contents(tmp_path) == undisturbed
    assert not multiprocessing.active_children()


class Fatal(GaussianMixture):
    """Ends the worker process that asks it."""

    parent = os.getpid()

    def denoise(self, x, sigma):
        if multiprocessing.parent_process() is not None:
            os._exit(3)
        return super().denoise(x, sigma)


def test_a_shard_that_ends_every_worker_is_given_up(observations, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "TRIES", 1)
    fatal = Fatal(torch.rand(2, 1, 4, 4), torch.full((2,), 0.1))
    with pytest.raises(BasisError, match="shard 0 was given to workers 1 times"):
        separate_job(observations[:4], fatal, out=tmp_path, workers=2, **SETTINGS)
    assert not multiprocessing.active_children()


def test_priors_that_cannot_be_pickled_are_one_line(prior, observations, tmp_path):
    own = GaussianMixture(torch.rand(2, 1, 4, 4), torch.full((2,), 0.1))
    own.lock = threading.Lock()
    with pytest.raises(BasisError, match="cannot be sent to worker processes") as raised:
        separate_job(observations[:4], own, out=tmp_path, workers=2, **SETTINGS)
    assert "\n" not in str(raised.value)


def test_workers_use_their_own_gpu(monkeypatch):
    assert work.own_device("auto") == ("cuda:0" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert work.own_device("auto") == "cuda:0"
    assert [work.own_device("auto", n) for n in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert work.own_device("cpu", 1) == "cpu"
    monkeypatch.setattr(workers, "run_processes", lambda task, payloads, count: count)
    task = work.Task("separate", (), 1, device="cuda")
    assert workers.run_workers(task, iter(()), None, None) == 2


def test_a_worker_loads_a_prior_once_and_checks_its_weights(monkeypatch):
    from basis.store.loading import load_prior

    loads = []
    monkeypatch.setattr(work, "load_prior", lambda *w, **o: loads.append(w) or load_prior(*w, **o))
    right = load_prior("mnist").card.sha256
    task = work.Task("separate", ("mnist",), 4, checksums=(right,))
    for _ in range(3):
        work.load_priors(task, "cpu")
    assert len(loads) == 1
    work._LOADED.clear()
    wrong = work.Task("separate", ("mnist",), 4, checksums=("0" * 64,))
    with pytest.raises(BasisError, match="other weights"):
        work.load_priors(wrong, "cpu")


# Dask --------------------------------------------------------------------------------------------


@pytest.fixture
def cluster():
    """Two workers in this process, without ports and without a dashboard."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="inproc",
    ) as made:
        yield made


def test_dask_makes_the_same_store(prior, observations, undisturbed, tmp_path, cluster):
    address = cluster.scheduler_address
    separate_job(observations, prior, out=tmp_path, shard=1, scheduler=address, **SETTINGS)
    assert contents(tmp_path) == undisturbed


def test_a_lost_dask_worker_costs_its_shard(prior, observations, undisturbed, tmp_path, cluster):
    lost = []

    def progress(p):
        if p.now and not lost:
            lost.append(cluster.workers[0])
            cluster.scale(1)

    separate_job(
        observations, prior, out=tmp_path, shard=1, scheduler=cluster.scheduler_address,
        progress=progress, **SETTINGS,
    )  # fmt: skip
    assert lost and contents(tmp_path) == undisturbed


def test_a_missing_scheduler_is_one_line(prior, observations, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from basis.jobs import dask_workers

    monkeypatch.setattr(dask_workers, "FIRST_PATIENCE", 0.5)
    with pytest.raises(BasisError, match="no Dask scheduler answers") as raised:
        separate_job(
            observations[:2], prior, out=tmp_path, scheduler="tcp://127.0.0.1:9", **SETTINGS
        )
    assert "\n" not in str(raised.value)
