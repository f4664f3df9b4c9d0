"""Jobs: any number of mixtures in shards, on one machine or many, resumed where they were left."""

from __future__ import annotations

from basis.jobs.job import colorize_job, separate_job
from basis.jobs.runner import ShardProgress
from basis.jobs.store import JobStore, open_store
from basis.jobs.streams import (
    ArrayStream,
    FileStream,
    FittedStream,
    MixtureStream,
    PairStream,
    open_array,
)

__all__ = [
    "ArrayStream",
    "FileStream",
    "FittedStream",
    "JobStore",
    "MixtureStream",
    "PairStream",
    "ShardProgress",
    "colorize_job",
    "open_array",
    "open_store",
    "separate_job",
]
