"""Ancestral sampling given the observation, with the variance of the clean signal in every step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis.samplers.problem import Problem
from basis.samplers.sampler import MOST, Sampler, State, geometric, initial_guess, sample_clean
from basis.settings import setting


@dataclass(frozen=True)
class Ancestral(Sampler):
    """Steps from one noise level to the next through a clean signal, keeping the shared noise.

    A clean signal c is drawn from a Gaussian with the prior's mean and variance given the noisy
    signal x, conditioned on the observation. The next state is

        c + after * (r (x - c) / sigma + sqrt(1 - r^2) noise),     r = (after / sigma)^churn,

    which is the ancestral sampler of diffusion models (Ho et al. 2020, arXiv:2006.11239) with the
    variance that makes its steps exact for independent Gaussian values, however large they are (Bao
    et al. 2022, arXiv:2201.06503). It keeps what values have in common, such as a hue, where
    `gibbs`, which has no shared noise (r = 0), draws each value independently.
    """

    name: ClassVar[str] = "ancestral"

    steps: int = setting(98, "number of steps", at_least=1, at_most=MOST)
    sigma_max: float | None = setting(None, "first noise level; by default 20 std", above=0)
    sigma_min: float | None = setting(None, "last noise level; by default 1/30 std", above=0)
    churn: float = setting(1.0, "how fast the shared noise is replaced", at_least=0)
    temperature: float = setting(
        1.0, "scale of the noise of the clean signal; 0 takes its mean, as DDNM does", at_least=0
    )
    correlated: bool = setting(True, "draw correlated values where the priors know correlations")

    def run(self, problem: Problem) -> Iterator[State]:
        first, last = problem.noise_levels((self.sigma_max, self.sigma_min), (20.0, 1 / 30))
        sigmas = geometric(first, last, self.steps + 1)
        clean = initial_guess(problem)
        x = clean + sigmas[0] * problem.noise.normal(clean)
        for step, (sigma, after) in enumerate(itertools.pairwise(sigmas), start=1):
            clean = sample_clean(problem, x, sigma, self.temperature, correlated=self.correlated)
            shared = (after / sigma) ** self.churn
            fresh = math.sqrt(1 - shared**2) * problem.noise.normal(x)
            x = clean + after * (fresh + shared * (x - clean) / sigma)
            yield State(x, after, step, self.steps, level_done=True)
