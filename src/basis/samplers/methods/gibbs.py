"""Split Gibbs: alternate between the noisy and the clean image, each drawn in closed form.

The clean image given the noisy one is Gaussian to second order, with the mean and the variance that
the prior knows; given the mixture as well it is still Gaussian, and drawing it needs no inner loop.
The alternation is that of DAPS (Zhang et al. 2024, arXiv:2407.01521), whose inner Langevin dynamics
the closed form replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis.samplers._problem import Problem
from basis.samplers._sampler import (
    Sampler,
    State,
    check_numbers,
    check_share,
    geometric,
    two_paces,
)
from basis.samplers._steps import condition, first_guess


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Denoise, draw, meet the mixture, add noise again: one network call a step.

    It samples the posterior exactly when the clean image given the noisy one has independent
    Gaussian pixels, and ever more nearly so as sigma falls; the last state is a sample with noise
    sigma_min on it. Most steps go to the noise levels above `sigma_turn`, where it is decided which
    stroke belongs to which source.
    """

    name: ClassVar[str] = "gibbs"

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 3 spreads of the prior by default"""
    sigma_turn: float | None = None
    """where the slow part of the schedule ends; 7/6 spreads by default"""
    sigma_min: float | None = None
    """last noise level; 1/6 spreads by default"""
    share: float = 0.82
    """share of the steps spent above sigma_turn"""
    temperature: float = 1.0
    """scales the noise of the draw; 0 takes the mean instead, which no longer samples"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_turn=0.0, sigma_min=0.0, temperature=0)
        check_share(self.share)

    def run(self, problem: Problem) -> Iterator[State]:
        first, turn, last = problem.levels(
            (self.sigma_max, self.sigma_turn, self.sigma_min), (3, 7 / 6, 1 / 6)
        )
        sigmas = two_paces(first, turn, last, self.steps, self.share)
        yield from self._walk(problem, first_guess(problem), sigmas)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, last = problem.levels((sigma, self.sigma_min), (1, 1 / 6))
        yield from self._walk(problem, clean, geometric(first, last, self.steps + 1))

    def _walk(self, problem: Problem, clean: Tensor, sigmas: list[float]) -> Iterator[State]:
        """Goes down the noise levels from clean signals that are noised to the first of them."""
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step in range(self.steps):
            mean, variance = problem.moments(x, sigmas[step])
            if self.temperature:
                noise = problem.noise.normal(x)
                mean = torch.addcmul(mean, variance.sqrt(), noise, value=self.temperature)
            clean = condition(problem, mean, variance, self.temperature)
            x = clean + sigmas[step + 1] * problem.noise.normal(x)
            yield State(x, sigmas[step + 1], step + 1, self.steps, level_done=True)
