"""Unconditional draws from a prior: what it believes signals look like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from basis._inputs import PriorLike, as_prior, check_count, check_seed
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers.noise import Noise, item_seeds
from basis.tensors import clamp

BEND = 7.0
"""How much closer together small noise levels lie (Karras et al. 2022, arXiv:2206.00364)."""


@torch.no_grad()
def sample(
    prior: PriorLike,
    count: int = 16,
    *,
    steps: int = 32,
    seed: int = 0,
    batch: int = 64,
    each_class: bool = False,
    progress: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Signals drawn from a prior: (count, channels, *size), in its range.

    Noise of the prior's largest level is turned into a signal along the probability flow, with
    Heun's method: two network evaluations a step. A signal depends on the seed and its number
    alone, not on the count.

    Args:
        prior: Any prior, or its name or folder. One that knows no noise well above the spread of
            its signals cannot start from nothing: its draws begin from its typical value.
        steps: Steps from the largest to the smallest noise level.
        batch: Signals at once.
        each_class: Signals of every class in turn, for a prior that can be told them
            (`Prior.condition`): the first of the first class, the second of the second.
        device: Where to compute, as for `separate`.
    """
    for name, value in (("count", count), ("steps", steps), ("batch", batch)):
        check_count(name, value)
    seed, prior = check_seed(seed), as_prior(prior, device)
    ends = torch.tensor([prior.sigma_max, prior.sigma_min], dtype=torch.float64) ** (1 / BEND)
    sigmas = (ends[0] + torch.linspace(0, 1, steps + 1) * (ends[1] - ends[0])).pow(BEND).tolist()
    # Nothing is observed of any; equal observations are told apart by their number.
    seeds = [row[0] for row in item_seeds(torch.zeros(count, 1), 1, seed, "sample")]
    parts = [(prior, list(range(count)))]
    if each_class:
        if not prior.classes:
            prior.condition()  # says what is missing
        total = len(prior.classes)
        parts = [
            (prior.condition(c), list(range(c, count, total))) for c in range(min(total, count))
        ]
    drawn = torch.empty(count, *prior.shape, device=prior.device)
    done = 0
    for told, numbers in parts:
        for first in range(0, len(numbers), batch):
            rows = numbers[first : first + batch]
            for sigma, state in _flow(told, Noise([seeds[i] for i in rows]), len(rows), sigmas):
                x, done = state, done + len(rows)
                if progress is not None:
                    progress(Progress(done, count * steps, sigma))
            drawn[rows] = clamp(told.denoise(x, sigmas[-1]), prior.low, prior.high)
    return drawn


def _flow(
    prior: Prior, noise: Noise, count: int, sigmas: Sequence[float]
) -> Iterator[tuple[float, Tensor]]:
    """Noise levels and states, (count, channels, *size), along the probability flow."""
    x = torch.full((count, *prior.shape), prior.center, device=prior.device)
    x = x + sigmas[0] * noise.normal(x)
    for sigma, lower in pairwise(sigmas):
        slope = (x - prior.denoise(x, sigma)) / sigma
        ahead = x + (lower - sigma) * slope
        there = (ahead - prior.denoise(ahead, lower)) / lower
        x = x + (lower - sigma) * (slope + there) / 2
        yield lower, x
