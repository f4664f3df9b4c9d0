"""Annealed ascent to a mode of the posterior, with momentum: what polishes the answer of a search.

At each noise level the preconditioned step of Langevin dynamics is taken without its noise, from a
point a little ahead on the way (Nesterov's momentum). Where the posterior is Gaussian its mode is
its mean; within one mode of another posterior it is some dB nearer to the truth than a draw, at a
fraction of what a mean over draws costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State, check_numbers, geometric
from basis.samplers.steps import LangevinSteps, first_guess


@dataclass(frozen=True)
class Ascent(Sampler):
    """Ascent on p_sigma(x) N(m; A x, gamma^2) while sigma falls: one network call a step.

    It does not sample the posterior. From nothing it starts with noise, which tells sources of one
    prior apart; around an earlier answer it starts from that answer and is deterministic.
    """

    name: ClassVar[str] = "ascent"

    steps: int = 48
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 3 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 0.1 spreads by default"""
    momentum: float = 0.5
    """share of the last move that is made once more before each step"""
    rate: float = 1.0
    """step size in units of sigma^2"""
    weight: float = 4.0
    """likelihood weight: gamma^2 = sigma^2 / weight times the mixing's gain squared (plus noise)"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0, rate=0.0, weight=0.0)
        if not 0 <= self.momentum < 1:
            raise BasisError(f"momentum must be at least 0 and less than 1, not {self.momentum}")

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.levels((self.sigma_max, self.sigma_min), (3, 0.1))
        guess = first_guess(problem)
        start = guess + first * problem.noise.normal(guess)
        yield from self._walk(problem, start, first, last)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, last = problem.levels((sigma, self.sigma_min), (1, 0.1))
        yield from self._walk(problem, clean, first, last)

    def _walk(self, problem: Problem, x: Tensor, first: float, last: float) -> Iterator[State]:
        before = x
        climb = LangevinSteps(problem, self.rate, self.weight, temperature=0.0)
        for step, sigma in enumerate(geometric(first, last, self.steps), start=1):
            ahead = x + self.momentum * (x - before)
            before = x
            x = climb(ahead, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
