"""A posterior denoiser under a deterministic and a stochastic solver.

Given the mixture, the clean image's mean is the prior's own moved by the closed form of a Gaussian of diagonal variance:

    E[x | noisy, m] = mean + V A^T (A V A^T + tau^2)^-1 (m - A mean),

which is TMPD (Boys et al. 2023, arXiv:2310.06721) with a variance that the prior has learned instead of one
differentiated from its network. A posterior denoiser is a denoiser, so any solver of the diffusion can run it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from basis._errors import BasisError
from basis.samplers._base import Problem, Sampler, State, check_numbers, geometric
from basis.samplers._gibbs import condition, first_guess


def posterior_denoise(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """E[clean | noisy = x, mixture] to second order; shapes as in `Problem.denoise`."""
    mean, variance = problem.moments(x, sigma)
    return condition(problem, mean, variance)


@dataclass(frozen=True)
class PosteriorOde(Sampler):
    """The probability-flow ODE of the posterior denoiser, by Heun's method.

    It does not sample the posterior: an error made at a high noise level is never taken back, and where several
    explanations are possible it ends between them or in one of them, whichever is nearest.
    """

    name: ClassVar[str] = "posterior-ode"

    steps: int = 49
    """steps in all; each takes two network calls, the last one takes one"""
    sigma_max: float = 2.0
    """first noise level"""
    sigma_min: float = 0.05
    """last noise level"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0)

    def run(self, problem: Problem) -> Iterator[State]:
        sigmas = geometric(self.sigma_max, self.sigma_min, self.steps + 1)
        problem.check_sigma(*sigmas)
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


@dataclass(frozen=True)
class PosteriorSde(Sampler):
    """The posterior denoiser with the noise redrawn at every step.

    With `memory` 0 this is `gibbs` without its draw, and the plug-and-play of DiffPIR (Zhu et al. 2023,
    arXiv:2305.08995) with a learned variance. It does not sample the posterior: means stand for draws, so that it
    prefers probable explanations to typical ones. With the ratio of neighbouring noise levels as `memory` it is the ancestral
    sampler of diffusion models, which takes back less and keeps what pixels have in common, such as a hue.
    """

    name: ClassVar[str] = "posterior-sde"

    steps: int = 98
    """steps in all"""
    sigma_max: float = 1.0
    """first noise level"""
    sigma_min: float = 0.05
    """last noise level"""
    memory: float = 0.0
    """share of the old noise direction that is kept; 1 would be the deterministic solver"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0)
        if not 0 <= self.memory < 1:
            raise BasisError(f"memory must be at least 0 and less than 1, not {self.memory}")

    def run(self, problem: Problem) -> Iterator[State]:
        sigmas = geometric(self.sigma_max, self.sigma_min, self.steps + 1)
        problem.check_sigma(*sigmas)
        clean = first_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        fresh = math.sqrt(1 - self.memory**2)
        for step, (sigma, lower) in enumerate(itertools.pairwise(sigmas), start=1):
            clean = posterior_denoise(problem, x, sigma)
            noise = fresh * problem.noise.normal(x) + self.memory * (x - clean) / sigma
            x = clean + lower * noise
            yield State(x, lower, step, self.steps, level_done=True)
