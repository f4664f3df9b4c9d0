"""The posterior denoiser under a deterministic solver: the probability-flow ODE."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis.samplers._problem import Problem
from basis.samplers._sampler import Sampler, State, check_numbers, geometric
from basis.samplers._steps import first_guess, posterior_denoise


@dataclass(frozen=True)
class PosteriorOde(Sampler):
    """The probability-flow ODE of the posterior denoiser, by Heun's method.

    It does not sample the posterior: an error made at a high noise level is never taken back, and
    where several explanations are possible it ends between them or in one of them, whichever is
    nearest.
    """

    name: ClassVar[str] = "posterior-ode"

    steps: int = 49
    """steps in all; each takes two network calls, the last one takes one"""
    sigma_max: float | None = None
    """first noise level; 20/3 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 1/6 spreads by default"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0)

    @property
    def calls(self) -> int:
        return 2 * self.steps - 1

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.levels((self.sigma_max, self.sigma_min), (20 / 3, 1 / 6))
        sigmas = geometric(first, last, self.steps + 1)
        clean = first_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step, (sigma, lower) in enumerate(itertools.pairwise(sigmas), start=1):
            slope = (x - posterior_denoise(problem, x, sigma)) / sigma
            ahead = x + (lower - sigma) * slope
            if step < self.steps:
                slope_ahead = (ahead - posterior_denoise(problem, ahead, lower)) / lower
                ahead = x + (lower - sigma) * (slope + slope_ahead) / 2
            x = ahead
            yield State(x, lower, step, self.steps, level_done=True)
