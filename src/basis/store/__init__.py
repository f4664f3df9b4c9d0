"""Priors on disk: cards, weights, and the names under which they are found."""

from __future__ import annotations

from basis.store.folder import (
    CARD,
    WEIGHTS,
    build_module,
    read_card,
    save_prior,
    update_card,
    write_prior,
)
from basis.store.loading import (
    EMBEDDED,
    PriorEntry,
    add_prior,
    find_prior,
    hub_name,
    list_priors,
    load_prior,
    split_classes,
)

__all__ = [
    "CARD",
    "EMBEDDED",
    "WEIGHTS",
    "PriorEntry",
    "add_prior",
    "build_module",
    "find_prior",
    "hub_name",
    "list_priors",
    "load_prior",
    "read_card",
    "save_prior",
    "split_classes",
    "update_card",
    "write_prior",
]
