"""Jobs: any number of observations in shards, on one machine or many, resumable."""

from __future__ import annotations

from basis.jobs.job import ShardProgress, colorize_job, separate_job
from basis.jobs.store import JobStore, open_store
from basis.jobs.streams import ObservationStream

__all__ = [
    "JobStore",
    "ObservationStream",
    "ShardProgress",
    "colorize_job",
    "open_store",
    "separate_job",
]
