"""Annealed Langevin dynamics with preconditioned steps and most of them where modes are decided.

BASIS takes the same small step along every direction, limited by the directions that the
observation determines, and as many at every noise level. Here the step is preconditioned by the
covariance of a Gaussian given the observation,

    x + P (score + A^T (m - A x) / gamma^2) + sqrt(2 P) noise,   P = (1 / eta + A^T A / gamma^2)^-1,

which the mixing applies in closed form, so that steps can be many times larger and gamma smaller
than sigma.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.samplers.sampler import MOST, LangevinSteps, Sampler, State, geometric, initial_guess
from basis.settings import setting


@dataclass(frozen=True)
class Langevin(Sampler):
    """Preconditioned annealed Langevin dynamics: one network call and one noise level per step.

    It samples the posterior up to the discretization of its steps: at the end x follows
    p_sigma_min(x) N(m; A x, gamma^2) when the noise level falls slowly enough.
    """

    name: ClassVar[str] = "langevin"

    steps: int = setting(98, "number of steps", at_least=1, at_most=MOST)
    sigma_max: float | None = setting(None, "first noise level; by default 10/3 std", above=0)
    sigma_switch: float | None = setting(
        None, "where the slow part of the schedule ends; by default 1 std", above=0
    )
    sigma_min: float | None = setting(None, "last noise level; by default 0.1 std", above=0)
    slow_fraction: float = setting(
        0.8, "fraction of the steps above sigma_switch", at_least=0, at_most=1
    )
    rate: float = setting(1.0, "step size in units of sigma^2", above=0)
    weight: float = setting(4.0, "likelihood weight, (sigma gain / gamma)^2", above=0)

    def run(self, problem: Problem) -> Iterator[State]:
        first, switch, last = problem.noise_levels(
            (self.sigma_max, self.sigma_switch, self.sigma_min), (10 / 3, 1, 0.1)
        )
        sigmas = two_rates(first, switch, last, self.steps - 1, self.slow_fraction)
        yield from self._descend(problem, initial_guess(problem), sigmas)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, last = problem.noise_levels((sigma, self.sigma_min), (1, 0.1))
        yield from self._descend(problem, clean, geometric(first, last, self.steps))

    def _descend(self, problem: Problem, clean: Tensor, sigmas: list[float]) -> Iterator[State]:
        x = clean + sigmas[0] * problem.noise.normal(clean)
        move = LangevinSteps(problem, self.rate, self.weight)
        for step, sigma in enumerate(sigmas, start=1):
            x = move(x, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
        if not torch.isfinite(x).all():
            raise BasisError(f"the dynamics diverged: lower rate ({self.rate:g})")


def two_rates(first: float, switch: float, last: float, steps: int, fraction: float) -> list[float]:
    """`steps` + 1 noise levels: a fraction of the steps from first to switch, the rest to last."""
    slow = min(steps - 1, max(1, round(fraction * steps))) if steps > 1 else 0
    return [
        *geometric(first, switch, slow + 1)[:slow],
        *geometric(switch if slow else first, last, steps - slow + 1),
    ]
