"""Samplers: how the posterior is explored."""

from basis.samplers._ascent import Greedy, NoiseConditioned
from basis.samplers._base import (
    Noise,
    Problem,
    Sampler,
    State,
    check_finite,
    geometric,
    item_seeds,
)
from basis.samplers._basis import Basis
from basis.samplers._dirac import Dirac
from basis.samplers._finish import finish, settle
from basis.samplers._gibbs import Gibbs
from basis.samplers._langevin import Langevin
from basis.samplers._posterior import PosteriorOde, PosteriorSde, posterior_denoise

SAMPLERS: dict[str, type[Sampler]] = {
    s.name: s
    for s in (Basis, Gibbs, Langevin, PosteriorSde, PosteriorOde, Dirac, NoiseConditioned, Greedy)
}
"""Samplers by the name that `separate` and the command line know them by."""

__all__ = [
    "SAMPLERS",
    "Basis",
    "Dirac",
    "Gibbs",
    "Greedy",
    "Langevin",
    "Noise",
    "NoiseConditioned",
    "PosteriorOde",
    "PosteriorSde",
    "Problem",
    "Sampler",
    "State",
    "check_finite",
    "finish",
    "geometric",
    "item_seeds",
    "posterior_denoise",
    "settle",
]
