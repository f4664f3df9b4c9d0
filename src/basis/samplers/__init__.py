"""Samplers: how the posterior is explored."""

from __future__ import annotations

from basis.samplers.ancestral import Ancestral
from basis.samplers.ascent import Ascent
from basis.samplers.basis import Basis
from basis.samplers.dirac import Dirac
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin
from basis.samplers.noise import Noise, content_digest, item_seeds
from basis.samplers.problem import Problem
from basis.samplers.sampler import Sampler, State, check_finite, geometric, setting_texts
from basis.samplers.steps import (
    LangevinSteps,
    at_least_sure,
    condition,
    draw_clean,
    finish,
    first_guess,
    posterior_denoise,
    settle,
)

SAMPLERS: dict[str, type[Sampler]] = {
    sampler.name: sampler for sampler in (Ancestral, Ascent, Basis, Dirac, Gibbs, Langevin)
}
"""Samplers by their names on the command line. A new sampler is one file and one entry here."""

__all__ = [
    "SAMPLERS",
    "Ancestral",
    "Ascent",
    "Basis",
    "Dirac",
    "Gibbs",
    "Langevin",
    "LangevinSteps",
    "Noise",
    "Problem",
    "Sampler",
    "State",
    "at_least_sure",
    "check_finite",
    "condition",
    "content_digest",
    "draw_clean",
    "finish",
    "first_guess",
    "geometric",
    "item_seeds",
    "posterior_denoise",
    "setting_texts",
    "settle",
]
