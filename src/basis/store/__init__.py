"""Priors on disk: cards, weights, and the shelf that names are looked up on."""

from basis.store._store import (
    CARD,
    WEIGHTS,
    PriorEntry,
    add_prior,
    build_module,
    describe_module,
    find_prior,
    hub_name,
    list_priors,
    load_prior,
    read_card,
    save_prior,
    write_prior,
)

__all__ = [
    "CARD",
    "WEIGHTS",
    "PriorEntry",
    "add_prior",
    "build_module",
    "describe_module",
    "find_prior",
    "hub_name",
    "list_priors",
    "load_prior",
    "read_card",
    "save_prior",
    "write_prior",
]
