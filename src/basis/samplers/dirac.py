"""The Dirac (substitution) ODE: the last source is what remains of the mixture.

Mariani et al. 2023, "Multi-Source Diffusion Models" (arXiv:2302.02257), with one prior per source:
source i < k follows score_i - (alpha_i / alpha_k) score_k. Restart sampling (Xu et al. 2023,
arXiv:2306.14878) noises the result and integrates again, which corrects part of the errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.samplers.sampler import MOST, Sampler, State, geometric, initial_guess
from basis.settings import setting


@dataclass(frozen=True)
class Dirac(Sampler):
    """Euler steps down the ODE, then `restarts` times from `sigma_restart` down again.

    For plain mixtures of at least two sources without mask, noise or limits. It does not sample the
    posterior: the ODE commits to one mode early, and only its restarts visit others.
    """

    name: ClassVar[str] = "dirac"

    steps: int = setting(20, "steps per pass", at_least=1, at_most=MOST)
    sigma_max: float | None = setting(None, "first noise level; by default 20/3 std", above=0)
    sigma_min: float | None = setting(None, "last noise level; by default 1/6 std", above=0)
    restarts: int = setting(4, "passes after the first", at_least=0, at_most=MOST)
    sigma_restart: float | None = setting(
        None, "first noise level of a restart; by default 8/3 std", above=0
    )

    @property
    def total_steps(self) -> int:
        return self.steps * (1 + self.restarts)

    def run(self, problem: Problem) -> Iterator[State]:
        alphas = problem.mixing.plain_alphas
        if alphas is None or len(alphas) < 2 or problem.mixing.noise or 0 in alphas:
            raise BasisError(
                "sampler 'dirac' takes plain mixtures of at least two sources, without mask, noise "
                "or limits; use gibbs for this mixing"
            )
        first, restart, last = problem.noise_levels(
            (self.sigma_max, self.sigma_restart, self.sigma_min), (20 / 3, 8 / 3, 1 / 6)
        )
        clean = initial_guess(problem)
        x = clean + first * problem.noise.normal(clean)
        done = 0
        ratios = _column(alphas[:-1], x) / alphas[-1]
        for number in range(1 + self.restarts):
            top = restart if number else first
            if number:
                x = x + math.sqrt(top**2 - last**2) * problem.noise.normal(x)
            sigmas = geometric(top, last, self.steps + 1)
            for sigma, lower in itertools.pairwise(sigmas):
                x = _substitute(problem, x, alphas)
                score = problem.score(x, sigma)
                drift = score[:, :-1] - ratios * score[:, -1:]
                free = x[:, :-1] + (sigma - lower) * sigma * drift
                x = _substitute(problem, torch.cat([free, x[:, -1:]], dim=1), alphas)
                done += 1
                yield State(x, lower, done, self.total_steps, level_done=True)


def _substitute(problem: Problem, x: Tensor, alphas: Sequence[float]) -> Tensor:
    """x with its last source replaced by what the others leave of the mixture."""
    left = problem.observation - (_column(alphas[:-1], x) * x[:, :-1]).sum(dim=1)
    return torch.cat([x[:, :-1], left[:, None] / alphas[-1]], dim=1)


def _column(alphas: Sequence[float], x: Tensor) -> Tensor:
    """Mixing coefficients shaped to broadcast over the sources of a state."""
    return torch.tensor(alphas).to(x).view(-1, *[1] * (x.ndim - 2))
