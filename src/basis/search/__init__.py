"""Search: plans, ranking, modes, plausibility and unknown alphas."""

from __future__ import annotations

from basis.search.plan import Plan, Round, plan_for
from basis.search.plausibility import energy
from basis.search.ranking import Ranking, align, exchangeable
from basis.search.uncertainty import Mode

__all__ = [
    "Mode",
    "Plan",
    "Ranking",
    "Round",
    "align",
    "energy",
    "exchangeable",
    "plan_for",
]
