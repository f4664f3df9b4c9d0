"""Unconditional samples of a prior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from basis._inputs import PriorLike, check_count, check_seed, load_priors
from basis.errors import BasisError
from basis.priors.prior import Prior
from basis.progress import Callback, Progress, progress_bar
from basis.samplers.problem import Noise, item_seeds
from basis.tensors import clamp

RHO = 7.0
"""How much denser small noise levels are (Karras et al., arXiv:2206.00364)."""


@torch.no_grad()
def sample(
    prior: PriorLike,
    count: int = 16,
    *,
    steps: int = 32,
    seed: int = 0,
    batch_size: int = 64,
    each_class: bool = False,
    device: torch.device | str | None = None,
    progress: bool | Callback | None = None,
) -> Tensor:
    """Samples of a prior, (count, channels, *size), in its value range.

    Noise of the prior's largest level is transformed along the probability flow by Heun's method,
    with two network evaluations per step. A sample depends only on the seed and its index.

    Args:
        prior: A prior, its name or its folder. If its largest noise level is not much larger than
            the standard deviation of its signals, samples start from its typical value.
        count: The number of samples.
        steps: Steps from the largest to the smallest noise level.
        seed: The seed of the noise.
        batch_size: Samples drawn together.
        each_class: Samples of every class in turn, for a class-conditional prior.
        device: Where to compute, as for `separate`.
        progress: As for `separate`.
    """
    for name, value in (("count", count), ("steps", steps), ("batch_size", batch_size)):
        check_count(name, value)
    seed, prior = check_seed(seed), load_priors(prior, device)[0]
    ends = torch.tensor([prior.sigma_max, prior.sigma_min], dtype=torch.float64) ** (1 / RHO)
    sigmas = (ends[0] + torch.linspace(0, 1, steps + 1) * (ends[1] - ends[0])).pow(RHO).tolist()
    # There is no observation; equal observations are distinguished by their index.
    seeds = [row[0] for row in item_seeds(torch.zeros(count, 1), 1, seed, "sample")]
    parts = [(prior, list(range(count)))]
    if each_class:
        if not prior.classes:
            raise BasisError(f"prior {prior.name!r} is not class-conditional: leave each_class out")
        total = len(prior.classes)
        parts = [
            (prior.condition(c), list(range(c, count, total))) for c in range(min(total, count))
        ]
    samples = torch.empty(count, *prior.shape, device=prior.device)
    done = 0
    with progress_bar(progress, "sampling") as report:
        for conditioned, indices in parts:
            for first in range(0, len(indices), batch_size):
                rows = indices[first : first + batch_size]
                noise = Noise([seeds[i] for i in rows])
                for sigma, x in _flow(conditioned, noise, len(rows), sigmas):  # noqa: B007
                    done += len(rows)
                    if report is not None:
                        report(Progress(done, count * steps, sigma))
                clean = conditioned.denoise(x, sigmas[-1])
                samples[rows] = clamp(clean, prior.low, prior.high)
    return samples


def _flow(
    prior: Prior, noise: Noise, count: int, sigmas: Sequence[float]
) -> Iterator[tuple[float, Tensor]]:
    """Noise levels and states, (count, channels, *size), along the probability flow."""
    x = torch.full((count, *prior.shape), prior.center, device=prior.device)
    x = x + sigmas[0] * noise.normal(x)
    for sigma, lower in pairwise(sigmas):
        slope = (x - prior.denoise(x, sigma)) / sigma
        ahead = x + (lower - sigma) * slope
        next_slope = (ahead - prior.denoise(ahead, lower)) / lower
        x = x + (lower - sigma) * (slope + next_slope) / 2
        yield lower, x
