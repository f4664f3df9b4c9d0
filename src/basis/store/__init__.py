"""Priors on disk: cards, weights, and the names under which they are found."""

from __future__ import annotations

from basis.store.loading import PriorEntry, list_priors

__all__ = [
    "PriorEntry",
    "list_priors",
]
