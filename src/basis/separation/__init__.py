"""Separation: a prior, a mixing and a plan become sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import lazy_door

if TYPE_CHECKING:
    from basis.separation._colorize import colorize as colorize
    from basis.separation._colorize import colouring as colouring
    from basis.separation._colorize import lay_colours as lay_colours
    from basis.separation._colour_choice import colourings_drawn as colourings_drawn
    from basis.separation._inputs import as_prior as as_prior
    from basis.separation._inputs import overridden as overridden
    from basis.separation._measuring import measure_energies as measure_energies
    from basis.separation._nouns import make_sampler as make_sampler
    from basis.separation._order import align as align
    from basis.separation._order import exchangeable as exchangeable
    from basis.separation._plan import Plan as Plan
    from basis.separation._plan import Round as Round
    from basis.separation._plan import plan_for as plan_for
    from basis.separation._plausibility import energy as energy
    from basis.separation._ranking import Ranking as Ranking
    from basis.separation._result import Progress as Progress
    from basis.separation._result import Result as Result
    from basis.separation._result_rows import has_draws as has_draws
    from basis.separation._result_rows import verdict_rows as verdict_rows
    from basis.separation._separate import separate as separate
    from basis.separation._separate import separate_each as separate_each
    from basis.separation._separate import settled_plan as settled_plan
    from basis.separation._uncertainty import Mode as Mode
    from basis.separation._unconditional import sample as sample
    from basis.separation._words import CHOICES as CHOICES
    from basis.separation._words import DEFAULT_EFFORT as DEFAULT_EFFORT
    from basis.separation._words import EFFORTS as EFFORTS
    from basis.separation._words import Choice as Choice
    from basis.separation._words import Effort as Effort
    from basis.separation._words import SamplerName as SamplerName
    from basis.separation._workers import default_workers as default_workers
    from basis.separation._workers import threads as threads

# The command line asks for the words alone, which must not cost an import of torch.
_HOMES = {
    "CHOICES": "_words",
    "Choice": "_words",
    "DEFAULT_EFFORT": "_words",
    "EFFORTS": "_words",
    "Effort": "_words",
    "Plan": "_plan",
    "Progress": "_result",
    "Ranking": "_ranking",
    "Result": "_result",
    "Round": "_plan",
    "SamplerName": "_words",
    "align": "_order",
    "as_prior": "_inputs",
    "colorize": "_colorize",
    "colouring": "_colorize",
    "colourings_drawn": "_colour_choice",
    "default_workers": "_workers",
    "energy": "_plausibility",
    "exchangeable": "_order",
    "has_draws": "_result_rows",
    "Mode": "_uncertainty",
    "lay_colours": "_colorize",
    "make_sampler": "_nouns",
    "overridden": "_inputs",
    "measure_energies": "_measuring",
    "plan_for": "_plan",
    "sample": "_unconditional",
    "separate": "_separate",
    "separate_each": "_separate",
    "settled_plan": "_separate",
    "threads": "_workers",
    "verdict_rows": "_result_rows",
}

__all__ = list(_HOMES)
__getattr__ = lazy_door(__name__, _HOMES)
