"""Samplers: how the posterior is explored."""

from basis.samplers._ascent import Greedy, NoiseConditioned
from basis.samplers._base import Noise, Problem, Sampler, State, item_seeds
from basis.samplers._basis import Basis

SAMPLERS: dict[str, type[Sampler]] = {s.name: s for s in (Basis, NoiseConditioned, Greedy)}
"""Samplers by the name that `separate` and the command line know them by."""

__all__ = [
    "SAMPLERS",
    "Basis",
    "Greedy",
    "Noise",
    "NoiseConditioned",
    "Problem",
    "Sampler",
    "State",
    "item_seeds",
]
