"""Search: plans, ranking, modes, plausibility and unknown alphas."""

from __future__ import annotations

from basis.search.plan import Plan, Round
from basis.search.ranking import Ranking
from basis.search.uncertainty import Mode

__all__ = [
    "Mode",
    "Plan",
    "Ranking",
    "Round",
]
