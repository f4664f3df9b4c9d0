"""The Dirac (substitution) ODE: the last source is what the others leave of the mixture.

Mariani et al. 2023, "Multi-Source Diffusion Models" (arXiv:2302.02257), with all scores from one
prior per
source: source i < k follows score_i - (alpha_i / alpha_k) score_k. Going back up in noise and down
again (restart sampling, Xu et al. 2023, arXiv:2306.14878) takes back part of the errors of the way
down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State, check_numbers, geometric
from basis.samplers.steps import first_guess


@dataclass(frozen=True)
class Dirac(Sampler):
    """Euler steps down the ODE, then up to `sigma_restart` and down again, `restarts` times.

    For plain mixtures of at least two sources, observed exactly. It does not sample the posterior:
    the ODE commits early, and only its restarts look at anything else.
    """

    name: ClassVar[str] = "dirac"

    steps: int = 20
    """steps of each way down"""
    sigma_max: float | None = None
    """first noise level; 20/3 spreads of the prior by default"""
    sigma_min: float | None = None
    """last noise level; 1/6 spreads by default"""
    restarts: int = 4
    """ways down after the first"""
    sigma_restart: float | None = None
    """where a restart begins; 8/3 spreads by default"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0, restarts=0, sigma_restart=0.0)

    @property
    def total(self) -> int:
        return self.steps * (1 + self.restarts)

    def run(self, problem: Problem) -> Iterator[State]:
        alphas = plain_alphas(problem.mixing)
        first, restart, last = problem.levels(
            (self.sigma_max, self.sigma_restart, self.sigma_min), (20 / 3, 8 / 3, 1 / 6)
        )
        clean = first_guess(problem)
        x = clean + first * problem.noise.normal(clean)
        done = 0
        weights = _column(alphas[:-1], x) / alphas[-1]
        for way in range(1 + self.restarts):
            top = restart if way else first
            if way:
                x = x + math.sqrt(top**2 - last**2) * problem.noise.normal(x)
            sigmas = geometric(top, last, self.steps + 1)
            for sigma, lower in itertools.pairwise(sigmas):
                x = substitute(problem, x, alphas)
                score = problem.score(x, sigma)
                drift = score[:, :-1] - weights * score[:, -1:]
                free = x[:, :-1] + (sigma - lower) * sigma * drift
                x = substitute(problem, torch.cat([free, x[:, -1:]], dim=1), alphas)
                done += 1
                yield State(x, lower, done, self.total, level_done=True)


def substitute(problem: Problem, x: Tensor, alphas: Sequence[float]) -> Tensor:
    """x with its last source replaced by what the others leave of the mixture."""
    left = problem.observation - (_column(alphas[:-1], x) * x[:, :-1]).sum(dim=1)
    return torch.cat([x[:, :-1], left[:, None] / alphas[-1]], dim=1)


def plain_alphas(mixing: Mixing) -> list[float]:
    """The weights of a plain mixture; anything else is refused."""
    alphas = mixing.weights
    if alphas is None or len(alphas) < 2 or mixing.noise or 0 in alphas:
        raise BasisError(
            "sampler 'dirac' takes plain mixtures of at least two sources, without mask, noise or "
            "limits; use gibbs for this mixing"
        )
    return alphas


def _column(alphas: Sequence[float], x: Tensor) -> Tensor:
    """Weights that broadcast over the sources of a state."""
    return torch.tensor(alphas).to(x).view(-1, *[1] * (x.ndim - 2))
