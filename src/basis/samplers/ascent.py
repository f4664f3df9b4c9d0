"""Annealed ascent to a mode of the posterior, with momentum: the last stage of a search.

At each noise level the preconditioned step of Langevin dynamics is taken without noise, from a
point extrapolated along the last move (Nesterov's momentum). Where the posterior is Gaussian its
mode is its mean; within one mode of another posterior it is a few dB closer to the truth than a
sample, at a fraction of the cost of a mean over samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from basis.samplers.problem import Problem
from basis.samplers.sampler import MOST, LangevinSteps, Sampler, State, geometric, initial_guess
from basis.settings import setting


@dataclass(frozen=True)
class Ascent(Sampler):
    """Ascent on p_sigma(x) N(m; A x, gamma^2) while sigma falls: one network call per step.

    It does not sample the posterior. A run starts with noise, which makes sources of one prior
    differ; from an earlier result it starts without noise and is deterministic.
    """

    name: ClassVar[str] = "ascent"

    steps: int = setting(48, "number of steps", at_least=1, at_most=MOST)
    sigma_max: float | None = setting(None, "first noise level; by default 3 std", above=0)
    sigma_min: float | None = setting(None, "last noise level; by default 0.1 std", above=0)
    momentum: float = setting(
        0.5, "fraction of the last move added before each step", at_least=0, below=1
    )
    rate: float = setting(1.0, "step size in units of sigma^2", above=0)
    weight: float = setting(4.0, "likelihood weight, (sigma gain / gamma)^2", above=0)

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.noise_levels((self.sigma_max, self.sigma_min), (3, 0.1))
        guess = initial_guess(problem)
        start = guess + first * problem.noise.normal(guess)
        yield from self._ascend(problem, start, first, last)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, last = problem.noise_levels((sigma, self.sigma_min), (1, 0.1))
        yield from self._ascend(problem, clean, first, last)

    def _ascend(self, problem: Problem, x: Tensor, first: float, last: float) -> Iterator[State]:
        previous = x
        move = LangevinSteps(problem, self.rate, self.weight, temperature=0.0)
        for step, sigma in enumerate(geometric(first, last, self.steps), start=1):
            ahead = x + self.momentum * (x - previous)
            previous = x
            x = move(ahead, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
