"""Choosing among samples: which explanation of a mixture do the priors find most probable?

A score prior has no likelihood, but its denoising error bounds one: in nats, up to a constant,

    -log p(x) <= integral of E |x - denoise(x + sigma n)|^2 / sigma^2  d log(sigma).

A few noise levels, with the same noise for all candidates of an item so that it cancels in the
comparison, rank well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from basis import metrics
from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.samplers.noise import Noise
from basis.samplers.problem import Problem
from basis.settings import CHOICES, Choice


@dataclass(frozen=True)
class Ranking:
    """How candidates are ranked.

    Attributes:
        by: The denoising energy, the log-likelihood where every prior has one, the sum of both, or
            not at all: the "first" or only "draw", or the "mean" of all.
        levels: Noise levels of the energy in spreads of the prior, ascending.
        draws: Noise draws per level.
    """

    by: Choice = "energy"
    levels: tuple[float, ...] = (1 / 3, 2 / 3, 4 / 3)
    draws: int = 2

    def __post_init__(self) -> None:
        if self.by not in CHOICES:
            raise BasisError(f"choose must be one of {', '.join(CHOICES)}, not {self.by!r}")
        if not self.levels or self.draws < 1 or any(not level > 0 for level in self.levels):
            raise BasisError("a ranking needs positive noise levels and at least one draw of each")

    def calls(self, candidates: int) -> int:
        """Network calls per source that ranking so many candidates takes."""
        if candidates < 2 or self.by in ("first", "draw", "mean"):
            return 0
        energy = len(self.levels) * self.draws if self.by != "likelihood" else 0
        return candidates * (energy + (self.by != "energy"))

    def __call__(self, problem: Problem, candidates: Tensor, seeds: Sequence[int]) -> Tensor:
        """Negative log-probabilities up to a constant per item, (batch, candidates).

        Args:
            problem: Its priors are asked, its evaluations counted.
            candidates: (batch, candidates, sources, channels, *size).
            seeds: One per item; the energy's noise is drawn from them.
        """
        total = candidates.new_zeros(candidates.shape[:2])
        if not self.calls(candidates.shape[1]):
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
        """The energy of every source by itself, (batch, candidates, sources)."""
        total = candidates.new_zeros(candidates.shape[:3])
        for weight, error in self._errors(problem, candidates, seeds):
            total += weight * error.flatten(2).sum(dim=2).view(total.shape)
        return total

    def _errors(
        self, problem: Problem, candidates: Tensor, seeds: Sequence[int]
    ) -> Iterator[tuple[float, Tensor]]:
        """Weights of the energy's terms, and squared denoising errors of all candidates."""
        noise = Noise(seeds)
        flat = candidates.flatten(0, 1)
        # Levels that the priors do not know fall together at the end of what they know.
        sigmas = sorted({problem.sigma(level) for level in self.levels})
        for sigma, weight in zip(sigmas, log_widths(sigmas), strict=True):
            for _ in range(self.draws):
                shared = noise.normal(candidates[:, :1]).expand_as(candidates).flatten(0, 1)
                clean = problem.denoise(flat + sigma * shared, sigma)
                yield weight / (sigma**2 * self.draws), (clean - flat).square()


def log_widths(sigmas: Sequence[float]) -> list[float]:
    """Each level's share of an integral over log(sigma), by the trapezoid's rule with level
    ends.
    """
    logs = [math.log(s) for s in sigmas]
    if len(logs) == 1:
        return [1.0]
    gaps = [b - a for a, b in itertools.pairwise(logs)]
    padded = [gaps[0], *gaps, gaps[-1]]
    return [(a + b) / 2 for a, b in itertools.pairwise(padded)]


ORDER = Ranking(levels=(8 / 3, 16 / 3), draws=8)
"""What tells the order (a church, an animal, a small digit) shows at high noise."""


def same_prior(priors: Sequence[Prior]) -> Tensor:
    """Which sources have the same prior: (sources, sources) of bool."""
    return torch.tensor([[_same(a, b) for b in priors] for a in priors])


def _same(a: Prior, b: Prior) -> bool:
    """Whether two priors are one, or the same weights loaded twice."""
    if a is b:
        return True
    if a.card is None or b.card is None or type(a) is not type(b):
        return False
    return a.card.sha256 == b.card.sha256 != "" and a.describe() == b.describe()


def exchangeable(priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """Which sources can be exchanged with which, by prior and mixing: (sources, sources) of
    bool.
    """
    return mixing.interchangeable & same_prior(priors)


def needs_order(priors: Sequence[Prior], mixing: Mixing) -> bool:
    """Whether sources that the mixing treats alike have different priors."""
    return bool((mixing.interchangeable & ~same_prior(priors)).any())


def align(x: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """x with its exchangeable sources in the order that comes nearest to the reference.

    Args:
        x, reference: (batch, sources, channels, *size).
        allowed: (sources, sources) of bool, as `exchangeable` gives it.
    """
    if not bool((allowed & ~torch.eye(len(allowed), dtype=torch.bool)).any()):
        return x
    a, b = x.flatten(2), reference.flatten(2)
    distance = (a[:, :, None] - b[:, None]).square().mean(dim=3)
    # An exchange that is not allowed is farther than anything that is.
    far = distance.sum() + 1
    distance = distance + far * (~allowed).to(distance)
    order = metrics.best_permutation(-distance)
    return torch.stack([item[o] for item, o in zip(x, order, strict=True)])


def by_prior(
    problem: Problem, x: Tensor, seeds: Sequence[int], *, draws: int | None = None
) -> Tensor:
    """The same sources, those that the mixing treats alike in the order that their priors prefer.

    Sources with priors of their own that settled in the wrong order seldom find the way back.
    `draws` is how often noise is drawn to tell, eight times by default.
    """
    ranking = ORDER if draws is None else replace(ORDER, draws=draws)
    k = x.shape[1]
    # Turned by 0 to k - 1 places, every source comes before every prior once.
    turned = torch.stack([x.roll(-turn, dims=1) for turn in range(k)], dim=1)
    energy = ranking.energies(problem, turned, seeds)
    costs = energy.new_zeros(len(x), k, k)
    for turn in range(k):
        for place in range(k):
            costs[:, (place + turn) % k, place] = energy[:, turn, place]
    costs = costs.masked_fill(~problem.mixing.interchangeable.to(costs.device), 1e12)
    order = metrics.best_permutation(-costs)
    return torch.stack([item[o] for item, o in zip(x, order, strict=True)])
