"""Progress of a separation, as it is reported to callers."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Progress:
    """Passed to a progress callback after every step.

    Attributes:
        done, total: Steps done of all, over all chunks.
        sigma: The noise level.
        state: The chains of the chunk that took the step, (mixtures, chains, k, channels, *size),
            noise and all; None where there are none to show. It is the sampler's own: read it in
            the callback, or copy it.
    """

    done: int
    total: int
    sigma: float
    state: Tensor | None = field(default=None, repr=False, compare=False)
