"""The paper's ablation of noise and annealing: plain ascent under the noiseless model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from basis.samplers._problem import Problem
from basis.samplers._sampler import Sampler, State
from basis.samplers.methods.basis import Basis


@dataclass(frozen=True)
class Greedy(Sampler):
    """Plain gradient ascent on log p(x) - (lagrangian / 2) |m - A x|^2 under the noiseless model.

    A score prior has no noiseless model; the smallest noise level stands for it. It does not sample
    the posterior.
    """

    name: ClassVar[str] = "greedy"

    steps: int = 1000
    """gradient steps"""
    sigma: float | None = None
    """noise level of the model; the smallest that the prior knows by default"""
    rate: float = 0.2
    """step size in units of sigma^2"""
    lagrangian: float | None = None
    """weight of the constraint; 1 / sigma^2 by default"""

    def run(self, problem: Problem) -> Iterator[State]:
        sigma = problem.sigma_range[0] if self.sigma is None else self.sigma
        weight = 1.0 if self.lagrangian is None else self.lagrangian * sigma**2
        ascent = Basis(
            sigma_max=sigma,
            sigma_min=sigma,
            levels=1,
            steps=self.steps,
            delta=self.rate * sigma**2,
            weight=weight,
            temperature=0.0,
        )
        return ascent.run(problem)
