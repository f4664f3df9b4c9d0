"""Split Gibbs: alternate between the noisy and the clean image, each drawn in closed form.

The clean image given the noisy one is Gaussian to second order, with the mean and the variance that the prior
knows; given the mixture as well it is still Gaussian, and drawing it needs no inner loop. The alternation is that of
DAPS (Zhang et al. 2024, arXiv:2407.01521), whose inner Langevin dynamics the closed form replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.samplers._base import (
    Problem,
    Sampler,
    State,
    check_numbers,
    check_share,
    geometric,
    two_paces,
)


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Denoise, draw, meet the mixture, add noise again: one network call a step.

    It samples the posterior exactly when the clean image given the noisy one has independent Gaussian pixels, and
    ever more nearly so as sigma falls; the last state is a sample with noise sigma_min on it. Most steps go to the
    noise levels above `sigma_turn`, where it is decided which stroke belongs to which source.
    """

    name: ClassVar[str] = "gibbs"

    steps: int = 98
    """steps in all"""
    sigma_max: float = 0.9
    """first noise level"""
    sigma_turn: float = 0.35
    """where the slow part of the schedule ends"""
    sigma_min: float = 0.05
    """last noise level"""
    share: float = 0.82
    """share of the steps spent above sigma_turn"""
    temperature: float = 1.0
    """scales the noise of the draw; 0 takes the mean instead, which no longer samples"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_turn=0.0, sigma_min=0.0, temperature=0)
        check_order(self)
        check_share(self.share)

    def run(self, problem: Problem) -> Iterator[State]:
        yield from self.walk(problem, first_guess(problem))

    def walk(
        self, problem: Problem, clean: Tensor, ceiling: float | None = None
    ) -> Iterator[State]:
        """Goes down from clean images that are noised to sigma_max, or evenly from a lower `ceiling`."""
        if ceiling is None:
            sigmas = two_paces(
                self.sigma_max, self.sigma_turn, self.sigma_min, self.steps, self.share
            )
        else:
            sigmas = geometric(ceiling, self.sigma_min, self.steps + 1)
        problem.check_sigma(sigmas[0], sigmas[-1])
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step in range(self.steps):
            mean, variance = problem.moments(x, sigmas[step])
            if self.temperature:
                noise = problem.noise.normal(x)
                mean = torch.addcmul(mean, variance.sqrt(), noise, value=self.temperature)
            clean = condition(problem, mean, variance, self.temperature)
            x = clean + sigmas[step + 1] * problem.noise.normal(x)
            yield State(x, sigmas[step + 1], step + 1, self.steps, level_done=True)


def first_guess(problem: Problem) -> Tensor:
    """Clean images before anything is known: grey ones that meet the mixture."""
    grey = torch.full_like(problem.empty(), 0.5)
    return problem.mixing.project(grey, problem.observation)


def condition(
    problem: Problem, drawn: Tensor, variance: Tensor, temperature: float = 0.0
) -> Tensor:
    """Moves draws of N(mean, variance) onto the mixture: draws of the same Gaussian given the mixture."""
    observed, tau = problem.observation, problem.mixing.noise
    if tau and temperature:
        # Matheron's rule: the observation's own noise is drawn as well.
        observed = observed - temperature * tau * problem.noise.normal(observed)
    return problem.mixing.posterior_mean(drawn, observed, variance.clamp_min(1e-9))


def check_order(sampler: Gibbs) -> None:
    """Refuses noise levels that do not fall."""
    if not sampler.sigma_max >= sampler.sigma_turn >= sampler.sigma_min:
        raise BasisError(
            "noise levels must fall from sigma_max to sigma_turn to sigma_min, not "
            f"{sampler.sigma_max:g}, {sampler.sigma_turn:g}, {sampler.sigma_min:g}"
        )
