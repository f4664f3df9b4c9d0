"""The end of every separation: take off the last noise and meet the mixture."""

from __future__ import annotations

from torch import Tensor

from basis.mixings import Mixing
from basis.samplers._base import Problem
from basis.samplers._posterior import posterior_denoise


def finish(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """Takes off noise of level sigma and meets the observation, sources in [0, 1].

    What is missing from the mixture goes to the pixels that the priors are least sure of.
    """
    return settle(problem.mixing, posterior_denoise(problem, x, sigma), problem.observation)


def settle(mixing: Mixing, x: Tensor, observation: Tensor) -> Tensor:
    """x inside [0, 1], meeting an exact observation exactly (a noisy one is left as near as x comes)."""
    return x.clamp(0, 1) if mixing.noise else mixing.project_box(x, observation)
