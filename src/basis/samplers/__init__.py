"""Samplers explore the posterior of the sources given the observation."""

from __future__ import annotations

from basis.samplers.ancestral import Ancestral
from basis.samplers.ascent import Ascent
from basis.samplers.basis import Basis
from basis.samplers.dirac import Dirac
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin
from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State

SAMPLERS: dict[str, type[Sampler]] = {
    "ancestral": Ancestral,
    "ascent": Ascent,
    "basis": Basis,
    "dirac": Dirac,
    "gibbs": Gibbs,
    "langevin": Langevin,
}
"""Samplers by name. A new sampler is one file and one line here."""

__all__ = [
    "SAMPLERS",
    "Ancestral",
    "Ascent",
    "Basis",
    "Dirac",
    "Gibbs",
    "Langevin",
    "Problem",
    "Sampler",
    "State",
]
