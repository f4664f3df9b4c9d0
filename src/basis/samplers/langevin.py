"""Annealed Langevin dynamics with a budget that is not uniform and steps that fit the mixture.

BASIS takes the same small step along every direction, as small as the mixture's own direction
allows, and as many at every noise level. Here the step is preconditioned by the covariance of a
Gaussian given the mixture,

    x + P (score + A^T (m - A x) / gamma^2) + sqrt(2 P) noise,   P = (1 / eta + A^T A / gamma^2)^-1,

which the mixing applies in closed form, so that steps can be many times larger and gamma smaller
than sigma; and most steps go to the noise levels where the modes are decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State, check_numbers, check_share, geometric, two_paces
from basis.samplers.steps import LangevinSteps, first_guess


@dataclass(frozen=True)
class Langevin(Sampler):
    """Preconditioned annealed Langevin dynamics: one network call a step, one step a noise level.

    It samples the posterior up to the discretisation of its steps: at the end x follows
    p_sigma_min(x) N(m; A x, gamma^2) when the schedule is slow enough.
    """

    name: ClassVar[str] = "langevin"

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 10/3 spreads of the prior by default"""
    sigma_turn: float | None = None
    """where the slow part of the schedule ends; 1 spread by default"""
    sigma_min: float | None = None
    """last noise level; 0.1 spreads by default"""
    share: float = 0.8
    """share of the steps spent above sigma_turn"""
    rate: float = 1.0
    """step size eta in units of sigma^2"""
    weight: float = 4.0
    """likelihood weight: gamma^2 = sigma^2 / weight times the mixing's gain squared (plus noise)"""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            steps=1,
            sigma_max=0.0,
            sigma_turn=0.0,
            sigma_min=0.0,
            rate=0.0,
            weight=0.0,
        )
        check_share(self.share)

    def run(self, problem: Problem) -> Iterator[State]:
        first, turn, last = problem.levels(
            (self.sigma_max, self.sigma_turn, self.sigma_min), (10 / 3, 1, 0.1)
        )
        sigmas = two_paces(first, turn, last, self.steps - 1, self.share)
        yield from self._walk(problem, first_guess(problem), sigmas)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, last = problem.levels((sigma, self.sigma_min), (1, 0.1))
        yield from self._walk(problem, clean, geometric(first, last, self.steps))

    def _walk(self, problem: Problem, clean: Tensor, sigmas: list[float]) -> Iterator[State]:
        """Goes down the noise levels from clean signals that are noised to the first of them."""
        x = clean + sigmas[0] * problem.noise.normal(clean)
        move = LangevinSteps(problem, self.rate, self.weight)
        for step, sigma in enumerate(sigmas, start=1):
            x = move(x, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
        if not torch.isfinite(x).all():
            raise BasisError(f"the dynamics diverged: lower rate ({self.rate:g})")
