"""Ancestral sampling given the mixture, with the variance of the clean signal in every step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State, check_numbers, check_switch, geometric
from basis.samplers.steps import draw_clean, first_guess


@dataclass(frozen=True)
class Ancestral(Sampler):
    """From one noise level to the next by way of a clean signal, keeping the noise they share.

    A clean signal c is drawn from the prior's mean and variance given the noisy one x and the
    mixture, and the next state from what lies between c and x,

        c + after * (r (x - c) / sigma + sqrt(1 - r^2) noise),     r = (after / sigma)^churn,

    which is the ancestral sampler of diffusion models (Ho et al. 2020, arXiv:2006.11239) with the
    variance that makes its steps exact for independent Gaussian values, however large they are (Bao
    et al. 2022, arXiv:2201.06503). It keeps what values have in common, such as a hue, where
    `gibbs`, which is the same without the shared noise (r = 0), draws each for itself.
    """

    name: ClassVar[str] = "ancestral"

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 20 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 1/30 spreads by default"""
    churn: float = 1.0
    """how fast the shared noise is forgotten; above 1 states wander more on their way"""
    temperature: float = 1.0
    """scales the draws of the clean signal; 0 takes its mean, as DDNM does"""
    together: bool = True
    """draw values that move together so, where priors know how they do"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0, churn=0, temperature=0)
        check_switch(self.together, "together")

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.levels((self.sigma_max, self.sigma_min), (20.0, 1 / 30))
        sigmas = geometric(first, last, self.steps + 1)
        clean = first_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step, (sigma, after) in enumerate(itertools.pairwise(sigmas), start=1):
            clean = draw_clean(problem, x, sigma, self.temperature, together=self.together)
            shared = (after / sigma) ** self.churn
            fresh = math.sqrt(1 - shared**2) * problem.noise.normal(x)
            x = clean + after * (fresh + shared * (x - clean) / sigma)
            yield State(x, after, step, self.steps, level_done=True)
