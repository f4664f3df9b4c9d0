import json
from pathlib import Path

import pytest
import torch

from basis.jobs.job import separate_job
from basis.priors.gaussian import GaussianMixture
from basis.samplers.gibbs import Gibbs

COUNT = 150
SETTINGS = {"method": Gibbs(steps=4), "samples": 4}
"""Four chains each: 32 observations in a block."""


def make_prior():
    means = torch.zeros(4, 1, 4, 4)
    means[1, :, :, :2] = 1
    means[2, :, :2] = 1
    means[3, :, 1:3, 1:3] = 1
    return GaussianMixture(means, torch.full((4,), 1e-3))


def make_observations(prior):
    draw = torch.randint(4, (COUNT, 2), generator=torch.Generator().manual_seed(0))
    noise = 0.01 * torch.randn(COUNT, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    mixed = prior.means.reshape(4, 1, 4, 4)[draw].sum(dim=1) + noise
    mixed[140] = mixed[3]  # repeated, in another shard
    return mixed.float()


def contents(folder):
    """Everything of a store but the record of how it went."""
    return {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.name != "run.json"}


def run_record(folder):
    return json.loads((Path(folder) / "run.json").read_text())


def stopping_after(shards):
    """A progress callback that interrupts, as Ctrl-C does, after this many shards."""

    def progress(p):
        nonlocal shards
        shards -= p.now > 0
        if shards == 0:
            raise KeyboardInterrupt

    return progress


@pytest.fixture(scope="package")
def prior():
    return make_prior()


@pytest.fixture(scope="package")
def observations(prior):
    return make_observations(prior)


@pytest.fixture(scope="package")
def undisturbed(prior, observations, tmp_path_factory):
    """The contents of the store of a job that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    separate_job(observations, prior, out=folder, **SETTINGS)
    return contents(folder)
