"""BASIS: noise-annealed Langevin dynamics on the posterior.

Jayaram & Thickstun 2020, "Source Separation with Deep Generative Priors" (arXiv:2002.07942),
Algorithm 1. The algorithm as printed has the wrong sign before its likelihood term; the
log-likelihood is -|m - g(x)|^2 / (2 gamma^2), so a step is

    x += eta * score(x, sigma) + (eta / gamma^2) * A^T (m - A x) + sqrt(2 eta) * noise,

with all terms taken at the same x, eta = delta * sigma^2 / sigma_min^2 and gamma = sigma.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.samplers.sampler import MOST, Sampler, State, geometric
from basis.settings import setting


@dataclass(frozen=True)
class Basis(Sampler):
    """Annealed Langevin dynamics with the paper's settings as defaults.

    It samples the posterior up to the discretization of its steps: at the end x follows
    p_sigma_min(x) N(m; A x, gamma^2), and `separate` then denoises and projects it.

    The paper's two ablations are settings:

        Basis(temperature=0)                        # no noise in the steps: annealed ascent
        Basis(temperature=0, levels=1, steps=1000)  # nor noise levels: ascent at sigma_min alone
    """

    name: ClassVar[str] = "basis"

    sigma_max: float | None = setting(None, "first noise level; by default the range", above=0)
    sigma_min: float | None = setting(None, "last noise level; by default range / 100", above=0)
    levels: int = setting(10, "noise levels in geometric progression", at_least=1, at_most=MOST)
    steps: int = setting(100, "Langevin steps per noise level", at_least=1, at_most=MOST)
    delta: float | None = setting(
        None, "step size at sigma_min, scaled as sigma^2; by default 0.2 sigma_min^2", above=0
    )
    weight: float = setting(1.0, "likelihood weight, (sigma / gamma)^2", above=0)
    temperature: float = setting(
        1.0, "scale of the noise; 0 ascends instead of sampling", at_least=0
    )
    start: Literal["uniform", "normal", "zeros"] = setting(
        "uniform", "initial state: uniform in the range, normal with sigma_max, or zeros"
    )

    @property
    def total_steps(self) -> int:
        return self.levels * self.steps

    def sigmas(self, problem: Problem) -> list[float]:
        """The noise levels, largest first."""
        width = problem.value_width / problem.std
        first, last = problem.noise_levels((self.sigma_max, self.sigma_min), (width, 0.01 * width))
        return geometric(first, last, self.levels)

    def run(self, problem: Problem) -> Iterator[State]:
        sigmas = self.sigmas(problem)
        last = sigmas[-1]
        delta = 0.2 * last**2 if self.delta is None else self.delta
        x = self._initial_state(problem, sigmas[0])
        done = 0
        for sigma in sigmas:
            eta = delta * (sigma / last) ** 2
            gamma2 = sigma**2 / self.weight + problem.mixing.noise**2
            for step in range(self.steps):
                drift = problem.score(x, sigma)
                likelihood = problem.likelihood_score(x, math.sqrt(gamma2))
                drift.add_(likelihood, alpha=1 / gamma2)
                x = x.add(drift, alpha=eta)
                if self.temperature:
                    x.add_(problem.noise.normal(x), alpha=self.temperature * math.sqrt(2 * eta))
                done += 1
                yield State(x, sigma, done, self.total_steps, level_done=step == self.steps - 1)
            if not torch.isfinite(x).all():
                raise BasisError(
                    f"the dynamics diverged at sigma {sigma:g}: lower delta ({delta:g}) "
                    f"or weight ({self.weight:g})"
                )

    def _initial_state(self, problem: Problem, sigma: float) -> Tensor:
        state = problem.empty()
        if self.start == "zeros":
            return torch.zeros_like(state)
        if self.start == "normal":
            return problem.noise.normal(state) * sigma
        state = problem.noise.uniform(state)
        for index, prior in enumerate(problem.priors):
            # Without bounds, a box about the typical value with the prior's standard deviation.
            half = math.sqrt(3) * prior.std
            low = prior.center - half if prior.low is None else prior.low
            high = prior.center + half if prior.high is None else prior.high
            state[:, index] = low + (high - low) * state[:, index]
        return state
