"""Jobs: any number of mixtures in shards, on one machine or many, resumed where they were left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import lazy_door

if TYPE_CHECKING:
    from basis.jobs._job import colorize_job as colorize_job
    from basis.jobs._job import separate_job as separate_job
    from basis.jobs._job_store import JobStore as JobStore
    from basis.jobs._job_store import open_store as open_store
    from basis.jobs._runner import ShardProgress as ShardProgress
    from basis.jobs._streams import ArrayStream as ArrayStream
    from basis.jobs._streams import FileStream as FileStream
    from basis.jobs._streams import FittedStream as FittedStream
    from basis.jobs._streams import MixtureStream as MixtureStream
    from basis.jobs._streams import PairStream as PairStream
    from basis.jobs._streams import open_array as open_array

_HOMES = {
    "ArrayStream": "_streams",
    "FileStream": "_streams",
    "FittedStream": "_streams",
    "JobStore": "_job_store",
    "MixtureStream": "_streams",
    "PairStream": "_streams",
    "ShardProgress": "_runner",
    "colorize_job": "_job",
    "open_array": "_streams",
    "open_store": "_job_store",
    "separate_job": "_job",
}

__all__ = list(_HOMES)
__getattr__ = lazy_door(__name__, _HOMES)
