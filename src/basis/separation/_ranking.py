"""Choosing among samples: which explanation of a mixture do the priors find most probable?

A score prior has no likelihood, but its denoising error bounds one: in nats, up to a constant,

    -log p(x) <= integral of E |x - denoise(x + sigma n)|^2 / sigma^2  d log(sigma).

A few noise levels, with the same noise for all candidates of an item so that it cancels in the comparison, rank well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.samplers import Noise, Problem

Choice = Literal["first", "energy", "likelihood", "both"]
CHOICES: tuple[Choice, ...] = ("first", "energy", "likelihood", "both")


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked.

    Attributes:
        by: The denoising energy, the log-likelihood where every prior has one, the sum of both, or not at all.
        sigmas: Noise levels of the energy, ascending.
        draws: Noise draws per level.
    """

    by: Choice = "energy"
    sigmas: tuple[float, ...] = (0.1, 0.2, 0.4)
    draws: int = 2

    def __post_init__(self) -> None:
        if self.by not in CHOICES:
            raise BasisError(f"choose must be one of {', '.join(CHOICES)}, not {self.by!r}")

    def calls(self, candidates: int) -> int:
        """Network calls per source that ranking so many candidates takes."""
        if candidates < 2 or self.by == "first":
            return 0
        energy = len(self.sigmas) * self.draws if self.by != "likelihood" else 0
        return candidates * (energy + (self.by != "energy"))

    def __call__(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        """Negative log-probabilities up to a constant per item, (batch, candidates); lower is better.

        Args:
            problem: Its priors are asked, its evaluations counted.
            candidates: (batch, candidates, sources, channels, height, width).
            seeds: One per item; the energy's noise is drawn from them.
        """
        total = torch.zeros(candidates.shape[:2], dtype=candidates.dtype, device=candidates.device)
        if not self.calls(candidates.shape[1]):
            return total
        if self.by in ("energy", "both"):
            total = total + self._energy(problem, candidates, seeds)
        if self.by in ("likelihood", "both"):
            total = total - _log_prob(problem, candidates)
        return total

    def _energy(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        total = torch.zeros(candidates.shape[:2], dtype=candidates.dtype, device=candidates.device)
        for weight, error in self._errors(problem, candidates, seeds):
            total += weight * error.flatten(1).sum(dim=1).view(total.shape)
        return total

    def energy_of_each(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        """The energy of every source by itself, (batch, candidates, sources), at those noise levels that all priors know."""
        low, high = problem.sigma_range
        known = tuple(s for s in self.sigmas if low <= s <= high) or (high,)
        total = torch.zeros(candidates.shape[:3], dtype=candidates.dtype, device=candidates.device)
        for weight, error in replace(self, sigmas=known)._errors(problem, candidates, seeds):
            total += weight * error.flatten(2).sum(dim=2).view(total.shape)
        return total

    def _errors(
        self, problem: Problem, candidates: Tensor, seeds: Sequence[int]
    ) -> Iterator[tuple[float, Tensor]]:
        """Weights of the energy's terms, and squared denoising errors, (batch * candidates, sources, ...)."""
        noise = Noise(seeds)
        flat = candidates.flatten(0, 1)
        for sigma, weight in zip(self.sigmas, self._weights(), strict=True):
            for _ in range(self.draws):
                shared = noise.normal(candidates[:, :1]).expand_as(candidates).flatten(0, 1)
                clean = problem.denoise(flat + sigma * shared, sigma)
                yield weight / (sigma**2 * self.draws), (clean - flat).square()

    def _weights(self) -> list[float]:
        """Each level's share of the integral over log(sigma), by the trapezoid's rule with level ends."""
        logs = [math.log(s) for s in self.sigmas]
        if len(logs) == 1:
            return [1.0]
        gaps = [b - a for a, b in itertools.pairwise(logs)]
        padded = [gaps[0], *gaps, gaps[-1]]
        return [(a + b) / 2 for a, b in itertools.pairwise(padded)]


def _log_prob(problem: Problem, candidates: Tensor) -> Tensor:
    """Sum over sources of log p at the smallest noise level that all priors know, (batch, candidates)."""
    sigma = problem.sigma_range[0]
    total = torch.zeros(candidates.shape[:2], dtype=candidates.dtype, device=candidates.device)
    for index, prior in enumerate(problem.priors):
        total += prior.log_prob(candidates[:, :, index].flatten(0, 1), sigma).view(total.shape)
    problem.evaluations += len(problem.priors)
    return total
