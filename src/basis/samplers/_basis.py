"""BASIS: noise-annealed Langevin dynamics on the posterior.

Jayaram & Thickstun 2020, "Source Separation with Deep Generative Priors" (arXiv:2002.07942), Algorithm 1. The
algorithm as printed has the wrong sign before its likelihood term; the log-likelihood is
-|m - g(x)|^2 / (2 gamma^2), so a step is

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

from basis._errors import BasisError
from basis.samplers._base import Problem, Sampler, State


@dataclass(frozen=True)
class Basis(Sampler):
    """Annealed Langevin dynamics with the paper's settings as defaults.

    It samples the posterior up to the discretisation of its steps: at the end x follows
    p_sigma_min(x) N(m; A x, gamma^2), which the last denoise-and-project of `separate` then cleans.
    """

    name: ClassVar[str] = "basis"

    sigma_max: float = 1.0
    """first noise level"""
    sigma_min: float = 0.01
    """last noise level"""
    levels: int = 10
    """noise levels in geometric progression (L)"""
    steps: int = 100
    """Langevin steps per level (T)"""
    delta: float = 2e-5
    """step size at the last level; other levels scale it by sigma^2 / sigma_min^2"""
    weight: float = 1.0
    """likelihood weight: gamma^2 = sigma^2 / weight (plus the observation noise)"""
    temperature: float = 1.0
    """scales the injected noise; 0 turns sampling into annealed ascent"""
    start: Literal["uniform", "normal", "zeros"] = "uniform"
    """where x begins: uniform in [0, 1], normal with sigma_max, or zero"""

    def __post_init__(self) -> None:
        if self.levels < 1 or self.steps < 1:
            raise BasisError(
                f"levels and steps must be at least 1, not {self.levels} and {self.steps}"
            )
        for field in ("sigma_max", "sigma_min", "delta", "weight"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise BasisError(f"{field} must be a positive number, not {value}")
        if self.sigma_min > self.sigma_max:
            raise BasisError(
                f"sigma_min {self.sigma_min:g} must not exceed sigma_max {self.sigma_max:g}"
            )
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise BasisError(f"temperature must be a number >= 0, not {self.temperature}")
        if self.start not in ("uniform", "normal", "zeros"):
            raise BasisError(f"start must be uniform, normal or zeros, not {self.start!r}")

    def sigmas(self) -> list[float]:
        """The noise levels, largest first."""
        if self.levels == 1:
            return [self.sigma_min]
        ratio = (self.sigma_min / self.sigma_max) ** (1 / (self.levels - 1))
        return [self.sigma_max * ratio**i for i in range(self.levels)]

    def run(self, problem: Problem) -> Iterator[State]:
        sigmas = self.sigmas()
        problem.check_sigma(*sigmas)
        x = self.begin(problem)
        done, total = 0, len(sigmas) * self.steps
        for sigma in sigmas:
            eta = self.delta * (sigma / self.sigma_min) ** 2
            gamma2 = sigma**2 / self.weight + problem.mixing.noise**2
            for step in range(self.steps):
                drift = problem.score(x, sigma)
                drift.add_(problem.likelihood_score(x), alpha=1 / gamma2)
                x = x.add(drift, alpha=eta)
                if self.temperature:
                    x.add_(problem.noise.normal(x), alpha=self.temperature * math.sqrt(2 * eta))
                done += 1
                yield State(x, sigma, done, total, level_done=step == self.steps - 1)
            if not torch.isfinite(x).all():
                raise BasisError(
                    f"the dynamics diverged at sigma {sigma:g}: lower delta ({self.delta:g}) "
                    f"or weight ({self.weight:g})"
                )

    def begin(self, problem: Problem) -> Tensor:
        """The first state."""
        if self.start == "uniform":
            return problem.noise.uniform(problem.empty())
        if self.start == "normal":
            return problem.noise.normal(problem.empty()) * self.sigma_max
        return torch.zeros_like(problem.empty())
