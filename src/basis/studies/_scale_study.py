"""What more workers would make of a job, by simulation from the times that a finished one measured.

One process reads mixtures, hands out shards and writes them; workers compute. Workers have two
shards each, so that none waits for its next, until the one process is so busy that they do.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from basis._errors import BasisError
from basis._figures import Table
from basis._reading import read_json
from basis._texts import one_line

_RESTART = 60.0  # seconds until a lost worker is back and has loaded its prior
_RUNS = 5
MOST_SHARDS, MOST_WORKERS = 2_000_000, 1_000_000
"""What is simulated in a minute."""


@dataclass(frozen=True)
class ShardTimes:
    """Times measured of a job.

    Attributes:
        shards: Seconds that shards took, each on one worker.
        writes: Seconds that the one process spent on each.
        per_shard: Mixtures in one, on average.
    """

    shards: tuple[float, ...]
    writes: tuple[float, ...]
    per_shard: int

    @property
    def limit(self) -> float:
        """Workers that the one process can feed: a shard's time over what it costs the process."""
        return statistics.fmean(self.shards) / statistics.fmean(self.writes)


@dataclass(frozen=True)
class Scaled:
    """A job with so many workers, as simulated.

    Attributes:
        workers: How many.
        hours: Expected time, the mean over simulated runs.
        deviation: Its standard deviation.
        efficiency: The share of the workers' time that made shards which were kept.
        lost: Shards that were lost with a worker and made again, the mean.
        busy: The share of the time that the one process was busy.
    """

    workers: int
    hours: float
    deviation: float
    efficiency: float
    lost: float
    busy: float


def read_times(folder: str | Path) -> ShardTimes:
    """The times that run.json of a finished job's folder tells."""
    path = Path(folder) / "run.json"
    try:
        record = read_json(path, "the record of a job")
        times = ShardTimes(
            tuple(map(float, record["shard_seconds"])),
            tuple(map(float, record["write_seconds"])),
            round(int(record["mixtures"]) / int(record["shards"])),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise BasisError(
            f"{path} is not the record of a finished job: {one_line(error)}"
        ) from error
    told = (*times.shards, *times.writes)
    if not all(0 <= t < 1e9 for t in told) or not 1 <= times.per_shard < 1e9:
        raise BasisError(f"{path} tells times that no shard takes")
    if not times.shards or min(times.shards) <= 0 or not times.writes or not any(times.writes):
        raise BasisError(f"{path} tells no times of shards; run the job from its beginning")
    return times


def simulate(
    times: ShardTimes, workers: int, separations: int, *, losses: float = 0.01, seed: int = 0
) -> Scaled:
    """The expected time of a job.

    Args:
        times: What shards cost; drawn from at random.
        workers: Workers of the kind that was measured.
        separations: Mixtures in all.
        losses: How often a worker is lost, per hour of each.
        seed: Of the simulation.
    """
    shards = -(-separations // times.per_shard)
    if shards > MOST_SHARDS or workers > MOST_WORKERS:
        raise BasisError(
            f"{shards} shards on {workers} workers are too many to simulate; at most "
            f"{MOST_SHARDS:,} shards of {times.per_shard} separations and {MOST_WORKERS:,} workers"
        )
    if not 0 <= losses * max(times.shards) < 3600 * 10:
        raise BasisError(
            f"workers that are lost {losses:g} times an hour finish no shard of "
            f"{max(times.shards):.3g} s; give fewer losses"
        )
    generator = random.Random(f"{seed} {workers}")
    runs = [_one(times, workers, shards, losses / 3600, generator) for _ in range(_RUNS)]
    ends = [end for end, _, _, _ in runs]
    return Scaled(
        workers,
        statistics.fmean(ends) / 3600,
        statistics.stdev(ends) / 3600,
        statistics.fmean(useful / (end * workers) for end, useful, _, _ in runs),
        statistics.fmean(lost for _, _, lost, _ in runs),
        statistics.fmean(busy / end for end, _, _, busy in runs),
    )


def _one(
    times: ShardTimes, workers: int, shards: int, rate: float, generator: random.Random
) -> tuple[float, float, int, float]:
    """One run: when it ends, time spent on shards that were kept, shards lost, the process's time.

    Results are handled in the order in which shards are begun, which is near enough to the order in
    which they end: what counts is how much there is to do.
    """
    free = [0.0] * workers
    written = end = useful = busy = 0.0
    lost = 0
    left = shards
    while left:
        begin = heapq.heappop(free)
        cost = generator.choice(times.writes)
        seconds = generator.choice(times.shards)
        dies = generator.expovariate(rate) if rate > 0 else float("inf")
        if dies < seconds:
            lost += 1
            heapq.heappush(free, begin + dies + _RESTART)
            continue
        left -= 1
        done = begin + seconds
        written = max(written, begin) + cost
        busy += cost
        useful += seconds
        end = max(end, done, written)
        heapq.heappush(free, max(done, written))
    return end, useful, lost, busy


def scale_table(rows: Sequence[Scaled]) -> Table:
    """Simulated jobs as a table."""
    return Table(
        ("workers", "hours", "efficiency", "shards made again", "one process busy"),
        [
            (
                f"{row.workers:,}",
                f"{row.hours:,.2f} ± {row.deviation:.2f}",
                f"{row.efficiency:.0%}",
                f"{row.lost:,.0f}",
                f"{row.busy:.0%}",
            )
            for row in rows
        ],
    )
