"""Samplers: how the posterior is explored.

Every file of `methods` is a sampler whose name is the file's, with hyphens; it is found by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import import_modules
from basis.samplers._noise import Noise as Noise
from basis.samplers._noise import content_digest as content_digest
from basis.samplers._noise import item_seeds as item_seeds
from basis.samplers._problem import Problem as Problem
from basis.samplers._sampler import Sampler as Sampler
from basis.samplers._sampler import State as State
from basis.samplers._sampler import check_finite as check_finite
from basis.samplers._sampler import geometric as geometric
from basis.samplers._sampler import setting_texts as setting_texts
from basis.samplers._steps import LangevinSteps as LangevinSteps
from basis.samplers._steps import at_least_sure as at_least_sure
from basis.samplers._steps import condition as condition
from basis.samplers._steps import draw_clean as draw_clean
from basis.samplers._steps import finish as finish
from basis.samplers._steps import first_guess as first_guess
from basis.samplers._steps import posterior_denoise as posterior_denoise
from basis.samplers._steps import settle as settle

if TYPE_CHECKING:
    from basis.samplers.methods.ancestral import Ancestral as Ancestral
    from basis.samplers.methods.ascent import Ascent as Ascent
    from basis.samplers.methods.basis import Basis as Basis
    from basis.samplers.methods.dirac import Dirac as Dirac
    from basis.samplers.methods.gibbs import Gibbs as Gibbs
    from basis.samplers.methods.greedy import Greedy as Greedy
    from basis.samplers.methods.langevin import Langevin as Langevin
    from basis.samplers.methods.noise_conditioned import NoiseConditioned as NoiseConditioned
    from basis.samplers.methods.posterior_ode import PosteriorOde as PosteriorOde
    from basis.samplers.methods.posterior_sde import PosteriorSde as PosteriorSde

SAMPLERS: dict[str, type[Sampler]] = {}
"""Samplers by the name that `separate` and the command line know them by."""

__all__ = [
    "SAMPLERS",
    "LangevinSteps",
    "Noise",
    "Problem",
    "Sampler",
    "State",
    "at_least_sure",
    "check_finite",
    "condition",
    "draw_clean",
    "finish",
    "first_guess",
    "geometric",
    "item_seeds",
    "posterior_denoise",
    "setting_texts",
    "settle",
]

for _file, _module in import_modules("samplers/methods").items():
    for _class in vars(_module).values():
        own = isinstance(_class, type) and issubclass(_class, Sampler)
        if own and getattr(_class, "name", "") == _file.replace("_", "-"):
            SAMPLERS[_class.name] = _class
            globals()[_class.__name__] = _class
            __all__ += [_class.__name__]
