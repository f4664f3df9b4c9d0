"""The posterior denoiser with fresh noise: DiffPIR, and the ancestral sampler."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis._errors import BasisError
from basis.samplers._problem import Problem
from basis.samplers._sampler import Sampler, State, check_numbers, geometric
from basis.samplers._steps import first_guess, posterior_denoise


@dataclass(frozen=True)
class PosteriorSde(Sampler):
    """The posterior denoiser with the noise redrawn at every step.

    With `memory` 0 this is `gibbs` without its draw, and the plug-and-play of DiffPIR (Zhu et al.
    2023, arXiv:2305.08995) with a learned variance. It does not sample the posterior: means stand
    for draws, so that it prefers probable explanations to typical ones. With the ratio of
    neighbouring noise levels as `memory` it is the ancestral sampler of diffusion models, which
    takes back less and keeps what pixels have in common, such as a hue.
    """

    name: ClassVar[str] = "posterior-sde"

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 10/3 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 1/6 spreads by default"""
    memory: float = 0.0
    """share of the old noise direction that is kept; 1 would be the deterministic solver"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0)
        if not 0 <= self.memory < 1:
            raise BasisError(f"memory must be at least 0 and less than 1, not {self.memory}")

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.levels((self.sigma_max, self.sigma_min), (10 / 3, 1 / 6))
        sigmas = geometric(first, last, self.steps + 1)
        clean = first_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        fresh = math.sqrt(1 - self.memory**2)
        for step, (sigma, lower) in enumerate(itertools.pairwise(sigmas), start=1):
            clean = posterior_denoise(problem, x, sigma)
            noise = fresh * problem.noise.normal(x) + self.memory * (x - clean) / sigma
            x = clean + lower * noise
            yield State(x, lower, step, self.steps, level_done=True)
