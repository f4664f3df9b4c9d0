"""How time and memory grow with the number of mixtures and of sources."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from basis.priors import Prior
from basis.separation import Progress, separate_each


@dataclass(frozen=True)
class Growth:
    """Time and memory of separating mixtures of k sources under a short schedule.

    `memory` is the most that the process held above what it held before, in MiB; None where the
    system does not report it.
    """

    mixtures: int
    k: int
    evaluations: int
    seconds: float
    memory: float | None


def measure_growth(
    prior: Prior,
    signals: Tensor,
    *,
    mixtures: int,
    k: int = 2,
    effort: int | None = None,
    batch: int = 500,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Growth:
    """Separates mixtures of random signals as a stream of batches.

    Args:
        prior: The prior.
        signals: Float signals to mix, (n, *prior.shape).
        mixtures, k: How many mixtures, and of how many sources.
        effort: Evaluations per mixture; a few steps (4 per source) by default.
        batch: Mixtures in memory at a time.
        seed: Seed of the draw and of the separations.
        progress: Called with the number of mixtures that are done.
    """
    gc.collect()
    before = _resident()
    most = before or 0.0
    generator = torch.Generator().manual_seed(seed)

    def batches() -> Iterator[Tensor]:
        for first in range(0, mixtures, batch):
            count = min(batch, mixtures - first)
            pick = torch.randint(len(signals), (count, k), generator=generator)
            yield signals[pick].sum(dim=1)

    def watch(_: Progress) -> None:
        nonlocal most
        most = max(most, _resident() or 0.0)

    done, evaluations, started = 0, 0, time.perf_counter()
    settings = {"alphas": (1.0,) * k, "effort": effort or 4 * k, "seed": seed, "progress": watch}
    for result in separate_each(batches(), prior, **settings):
        done += len(result.sources)
        evaluations = result.evaluations
        if progress is not None:
            progress(done)
    took = time.perf_counter() - started
    return Growth(mixtures, k, evaluations, took, None if before is None else most - before)


def _resident() -> float | None:
    """The process's memory in MiB, where the system reports it as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
