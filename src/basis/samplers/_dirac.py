"""The Dirac (substitution) ODE: the last source is what the others leave of the mixture.

Mariani et al. 2023, "Multi-Source Diffusion Models" (arXiv:2302.02257), with all scores from one prior per
source: source i < k follows score_i - (alpha_i / alpha_k) score_k. Going back up in noise and down again
(restart sampling, Xu et al. 2023, arXiv:2306.14878) takes back part of the errors of the way down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.mixings import Mixing
from basis.samplers._base import Problem, Sampler, State, check_numbers, geometric
from basis.samplers._gibbs import first_guess


@dataclass(frozen=True)
class Dirac(Sampler):
    """Euler steps down the ODE, then up to `sigma_restart` and down again, `restarts` times.

    For plain mixtures of at least two sources, observed exactly. It does not sample the posterior: the ODE
    commits early, and only its restarts look at anything else.
    """

    name: ClassVar[str] = "dirac"

    steps: int = 20
    """steps of each way down"""
    sigma_max: float = 2.0
    """first noise level"""
    sigma_min: float = 0.05
    """last noise level"""
    restarts: int = 4
    """ways down after the first"""
    sigma_restart: float = 0.8
    """where a restart begins"""

    def __post_init__(self) -> None:
        check_numbers(self, steps=1, sigma_max=0.0, sigma_min=0.0, restarts=0, sigma_restart=0.0)
        if not self.sigma_min < self.sigma_restart <= self.sigma_max:
            raise BasisError(
                f"sigma_restart {self.sigma_restart:g} must lie between sigma_min {self.sigma_min:g} "
                f"and sigma_max {self.sigma_max:g}"
            )

    def run(self, problem: Problem) -> Iterator[State]:
        alphas = plain_alphas(problem.mixing)
        problem.check_sigma(self.sigma_min, self.sigma_max)
        clean = first_guess(problem)
        x = clean + self.sigma_max * problem.noise.normal(clean)
        total, done = self.steps * (1 + self.restarts), 0
        weights = torch.tensor(alphas[:-1]).to(x).view(-1, 1, 1, 1) / alphas[-1]
        for way in range(1 + self.restarts):
            top = self.sigma_restart if way else self.sigma_max
            if way:
                x = x + math.sqrt(top**2 - self.sigma_min**2) * problem.noise.normal(x)
            sigmas = geometric(top, self.sigma_min, self.steps + 1)
            for sigma, lower in itertools.pairwise(sigmas):
                x = substitute(problem, x, alphas)
                score = problem.score(x, sigma)
                drift = score[:, :-1] - weights * score[:, -1:]
                free = x[:, :-1] + (sigma - lower) * sigma * drift
                x = substitute(problem, torch.cat([free, x[:, -1:]], dim=1), alphas)
                done += 1
                yield State(x, lower, done, total, level_done=True)


def substitute(problem: Problem, x: Tensor, alphas: Sequence[float]) -> Tensor:
    """x with its last source replaced by what the others leave of the mixture."""
    weights = torch.tensor(alphas[:-1]).to(x).view(-1, 1, 1, 1)
    left = problem.observation - (weights * x[:, :-1]).sum(dim=1)
    return torch.cat([x[:, :-1], left[:, None] / alphas[-1]], dim=1)


def plain_alphas(mixing: Mixing) -> list[float]:
    """The weights of a plain mixture; anything else is refused."""
    channels = mixing.channels
    alphas = mixing.matrix[0, ::channels] if mixing.observed == channels else None
    if (
        alphas is None
        or len(alphas) < 2
        or mixing.mask is not None
        or mixing.noise
        or not torch.equal(
            mixing.matrix, torch.kron(alphas[None], torch.eye(channels, dtype=alphas.dtype))
        )
        or (alphas == 0).any()
    ):
        raise BasisError(
            "sampler 'dirac' takes plain mixtures of at least two sources, without mask or noise; "
            "use gibbs for this mixing"
        )
    return alphas.tolist()
