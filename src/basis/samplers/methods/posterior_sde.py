"""The posterior denoiser with fresh noise: DiffPIR."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis.samplers._problem import Problem
from basis.samplers._sampler import Sampler, State, check_numbers, geometric
from basis.samplers._steps import first_guess, posterior_denoise


@dataclass(frozen=True)
class PosteriorSde(Sampler):
    """The posterior denoiser with the noise redrawn at every step.

    This is `gibbs` without its draw, and the plug-and-play of DiffPIR (Zhu et al. 2023,
    arXiv:2305.08995) with a learned variance. It does not sample the posterior: means stand for
    draws, so that it prefers probable explanations to typical ones.
    """

    name: ClassVar[str] = "posterior-sde"

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 10/3 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 1/6 spreads by default"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0)

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.levels((self.sigma_max, self.sigma_min), (10 / 3, 1 / 6))
        sigmas = geometric(first, last, self.steps + 1)
        clean = first_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step, (sigma, lower) in enumerate(itertools.pairwise(sigmas), start=1):
            clean = posterior_denoise(problem, x, sigma)
            x = clean + lower * problem.noise.normal(x)
            yield State(x, lower, step, self.steps, level_done=True)
