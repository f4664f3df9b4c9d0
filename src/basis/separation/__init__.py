"""Separation: a prior, a mixing and a plan become sources."""

from basis.separation._colorize import colorize, colouring
from basis.separation._ranking import CHOICES, Choice, Ranking
from basis.separation._search import DEFAULT_EFFORT, EFFORTS, Plan, Round, plan_for
from basis.separation._separate import Progress, Result, make_sampler, separate, separate_each
from basis.separation._unconditional import sample
from basis.separation._workers import default_workers, threads

__all__ = [
    "CHOICES",
    "DEFAULT_EFFORT",
    "EFFORTS",
    "Choice",
    "Plan",
    "Progress",
    "Ranking",
    "Result",
    "Round",
    "colorize",
    "colouring",
    "default_workers",
    "make_sampler",
    "plan_for",
    "sample",
    "separate",
    "separate_each",
    "threads",
]
