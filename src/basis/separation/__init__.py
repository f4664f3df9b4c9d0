"""Separation: a prior, a mixing and a plan become sources."""

from basis.separation._colorize import colorize, colouring
from basis.separation._nouns import make_sampler
from basis.separation._order import align, exchangeable
from basis.separation._plan import DEFAULT_EFFORT, EFFORTS, Effort, Plan, Round, plan_for
from basis.separation._ranking import CHOICES, Choice, Ranking
from basis.separation._result import Progress, Result
from basis.separation._separate import separate, separate_each
from basis.separation._unconditional import sample
from basis.separation._workers import default_workers, threads

__all__ = [
    "CHOICES",
    "DEFAULT_EFFORT",
    "EFFORTS",
    "Choice",
    "Effort",
    "Plan",
    "Progress",
    "Ranking",
    "Result",
    "Round",
    "align",
    "colorize",
    "colouring",
    "default_workers",
    "exchangeable",
    "make_sampler",
    "plan_for",
    "sample",
    "separate",
    "separate_each",
    "threads",
]
