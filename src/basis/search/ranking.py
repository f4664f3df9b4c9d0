"""Ranking of candidates: which sources do the priors find most probable, and in which order?

A score prior has no likelihood, but its denoising error bounds one. In nats, up to a constant,

    -log p(x) <= integral of E |x - denoise(x + sigma n)|^2 / sigma^2  d log(sigma).

A few noise levels rank well if all candidates of an item share the noise, so that it cancels in the
comparison.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from basis import metrics
from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.samplers.problem import Noise, Problem


@dataclass(frozen=True)
class Ranking:
    """How the best of several chains is chosen.

    Attributes:
        by: By denoising "energy", by "likelihood" if every prior has one, by the sum of "both", or
            not at all: the "first" chain, or the "mean" of all.
        levels: Noise levels of the energy in standard deviations of the prior, ascending.
        noises: Noise samples per level.
    """

    by: Literal["energy", "likelihood", "both", "first", "mean"] = "energy"
    levels: tuple[float, ...] = (1 / 3, 2 / 3, 4 / 3)
    noises: int = 2

    def __post_init__(self) -> None:
        accepted = ("energy", "likelihood", "both", "first", "mean")
        if self.by not in accepted:
            raise BasisError(f"ranking must be one of {', '.join(accepted)}, not {self.by!r}")
        if not self.levels or self.noises < 1 or any(not level > 0 for level in self.levels):
            raise BasisError("a ranking needs positive noise levels and at least one noise sample")

    def evaluations(self, candidates: int) -> int:
        """Network evaluations per source that it takes to rank this many candidates."""
        if candidates < 2 or self.by in ("first", "mean"):
            return 0
        energy = len(self.levels) * self.noises if self.by != "likelihood" else 0
        return candidates * (energy + (self.by != "energy"))

    def __call__(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        """Negative log-probabilities up to a constant per item, (batch, candidates).

        Args:
            problem: Provides the priors; its evaluations are counted.
            candidates: (batch, candidates, sources, channels, *size).
            seeds: One per item, for the noise of the energy.
        """
        total = candidates.new_zeros(candidates.shape[:2])
        if not self.evaluations(candidates.shape[1]):
            return total
        if self.by in ("energy", "both"):
            total = total + self.energies(problem, candidates, seeds).sum(dim=2)
        if self.by in ("likelihood", "both"):
            flat = candidates.flatten(0, 1)
            sigma = max(prior.likelihood_sigma for prior in problem.priors)
            log_prob = problem.log_prob(flat, min(sigma, problem.sigma_range[1]))
            total = total - log_prob.view(total.shape)
        return total

    def energies(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        """The energy of every source, (batch, candidates, sources)."""
        total = candidates.new_zeros(candidates.shape[:3])
        noise = Noise(seeds)
        flat = candidates.flatten(0, 1)
        # Levels outside the range of the priors are moved to its ends and may coincide.
        sigmas = sorted({problem.sigma(level) for level in self.levels})
        for sigma, width in zip(sigmas, log_widths(sigmas), strict=True):
            for _ in range(self.noises):
                shared = noise.normal(candidates[:, :1]).expand_as(candidates).flatten(0, 1)
                clean = problem.denoise(flat + sigma * shared, sigma)
                error = (clean - flat).square().flatten(2).sum(dim=2)
                total += width / (sigma**2 * self.noises) * error.view(total.shape)
        return total


def log_widths(sigmas: Sequence[float]) -> list[float]:
    """The share of each level in an integral over log(sigma), by the trapezoidal rule."""
    logs = [math.log(s) for s in sigmas]
    if len(logs) == 1:
        return [1.0]
    gaps = [b - a for a, b in itertools.pairwise(logs)]
    padded = [gaps[0], *gaps, gaps[-1]]
    return [(a + b) / 2 for a, b in itertools.pairwise(padded)]


ORDER = Ranking(levels=(8 / 3, 16 / 3), noises=8)
"""Which prior a source belongs to (a church, an animal, a small digit) shows at high noise."""


def same_prior(priors: Sequence[Prior]) -> Tensor:
    """Which sources have the same prior: (sources, sources) of bool."""
    return torch.tensor([[_same(a, b) for b in priors] for a in priors])


def _same(a: Prior, b: Prior) -> bool:
    """Whether two priors are one object, or the same weights loaded twice."""
    if a is b:
        return True
    if a.card is None or b.card is None or type(a) is not type(b):
        return False
    return a.card.sha256 == b.card.sha256 != "" and a.describe() == b.describe()


def exchangeable(priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """Which sources can be exchanged without changing the posterior: (sources, sources) of bool."""
    return mixing.interchangeable & same_prior(priors)


def needs_order(priors: Sequence[Prior], mixing: Mixing) -> bool:
    """Whether sources that the mixing does not distinguish have different priors."""
    return bool((mixing.interchangeable & ~same_prior(priors)).any())


def align(x: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """x with its exchangeable sources in the order that is closest to the reference.

    Args:
        x, reference: (batch, sources, channels, *size).
        allowed: (sources, sources) of bool, from `exchangeable`.
    """
    if not bool((allowed & ~torch.eye(len(allowed), dtype=torch.bool)).any()):
        return x
    a, b = x.flatten(2), reference.flatten(2)
    distance = (a[:, :, None] - b[:, None]).square().mean(dim=3)
    # An exchange that is not allowed is farther than any that is.
    far = distance.sum() + 1
    distance = distance + far * (~allowed).to(distance)
    return reorder(x, -distance)


def by_prior(
    problem: Problem, x: Tensor, seeds: Sequence[int], *, noises: int | None = None
) -> Tensor:
    """The same sources, those that the mixing does not distinguish in the order the priors prefer.

    Chains that settled in the wrong order seldom recover.

    Args:
        problem: Provides the priors.
        x: (batch, sources, channels, *size).
        seeds: One per item.
        noises: Noise samples per level; 8 by default.
    """
    ranking = ORDER if noises is None else replace(ORDER, noises=noises)
    k = x.shape[1]
    # Rotated by 0 to k - 1 positions, every source is evaluated under every prior once.
    rotated = torch.stack([x.roll(-shift, dims=1) for shift in range(k)], dim=1)
    energy = ranking.energies(problem, rotated, seeds)
    costs = energy.new_zeros(len(x), k, k)
    for shift in range(k):
        for index in range(k):
            costs[:, (index + shift) % k, index] = energy[:, shift, index]
    costs = costs.masked_fill(~problem.mixing.interchangeable.to(costs.device), 1e12)
    return reorder(x, -costs)


def reorder(x: Tensor, benefit: Tensor) -> Tensor:
    """x, (batch, sources, ...), in the order of the largest total benefit (batch, k, k)."""
    order = metrics.best_permutation(benefit)
    return torch.stack([item[o] for item, o in zip(x, order, strict=True)])
