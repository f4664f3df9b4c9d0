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
from basis.samplers.sampler import Sampler, State, check_numbers, geometric


@dataclass(frozen=True)
class Basis(Sampler):
    """Annealed Langevin dynamics with the paper's settings as defaults.

    It samples the posterior up to the discretisation of its steps: at the end x follows
    p_sigma_min(x) N(m; A x, gamma^2), which the last denoise-and-project of `separate` then cleans.
    """

    name: ClassVar[str] = "basis"

    sigma_max: float | None = None
    """first noise level; the width of the range by default (1 for pictures)"""
    sigma_min: float | None = None
    """last noise level; a hundredth of the range by default"""
    levels: int = 10
    """noise levels in geometric progression (L)"""
    steps: int = 100
    """Langevin steps per level (T)"""
    delta: float | None = None
    """step size at the last level, 0.2 sigma_min^2 by default; others scale it by sigma^2"""
    weight: float = 1.0
    """likelihood weight: gamma^2 = sigma^2 / weight (plus the observation noise)"""
    temperature: float = 1.0
    """scales the injected noise; 0 turns sampling into annealed ascent"""
    start: Literal["uniform", "normal", "zeros"] = "uniform"
    """where x begins: uniform in its range, normal with sigma_max, or zero"""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            levels=1,
            steps=1,
            sigma_max=0.0,
            sigma_min=0.0,
            delta=0.0,
            weight=0.0,
            temperature=0,
        )
        if None not in (self.sigma_min, self.sigma_max) and self.sigma_min > self.sigma_max:  # type: ignore[operator]
            raise BasisError(
                f"sigma_min {self.sigma_min:g} must not exceed sigma_max {self.sigma_max:g}"
            )
        if self.start not in ("uniform", "normal", "zeros"):
            raise BasisError(f"start must be uniform, normal or zeros, not {self.start!r}")

    @property
    def total(self) -> int:
        return self.levels * self.steps

    def sigmas(self, problem: Problem) -> list[float]:
        """The noise levels, largest first."""
        spreads = problem.unit / problem.std
        first, last = problem.levels((self.sigma_max, self.sigma_min), (spreads, 0.01 * spreads))
        return geometric(first, last, self.levels)

    def run(self, problem: Problem) -> Iterator[State]:
        sigmas = self.sigmas(problem)
        problem.check_sigma(*sigmas)
        last = sigmas[-1]
        delta = 0.2 * last**2 if self.delta is None else self.delta
        x = self.begin(problem, sigmas[0])
        done = 0
        for sigma in sigmas:
            eta = delta * (sigma / last) ** 2
            gamma2 = sigma**2 / self.weight + problem.mixing.noise**2
            for step in range(self.steps):
                drift = problem.score(x, sigma)
                pull = problem.likelihood_score(x, math.sqrt(gamma2))
                drift.add_(pull, alpha=1 / gamma2)
                x = x.add(drift, alpha=eta)
                if self.temperature:
                    x.add_(problem.noise.normal(x), alpha=self.temperature * math.sqrt(2 * eta))
                done += 1
                yield State(x, sigma, done, self.total, level_done=step == self.steps - 1)
            if not torch.isfinite(x).all():
                raise BasisError(
                    f"the dynamics diverged at sigma {sigma:g}: lower delta ({delta:g}) "
                    f"or weight ({self.weight:g})"
                )

    def begin(self, problem: Problem, sigma: float) -> Tensor:
        """The first state."""
        empty = problem.empty()
        if self.start == "uniform":
            share = problem.noise.uniform(empty)
            for index, prior in enumerate(problem.priors):
                low, high = prior.low, prior.high
                # Without a range, as wide a box about the typical value as has the prior's spread.
                low = prior.center - math.sqrt(3) * prior.std if low is None else low
                high = prior.center + math.sqrt(3) * prior.std if high is None else high
                share[:, index] = low + (high - low) * share[:, index]
            return share
        if self.start == "normal":
            return problem.noise.normal(empty) * sigma
        return torch.zeros_like(empty)
