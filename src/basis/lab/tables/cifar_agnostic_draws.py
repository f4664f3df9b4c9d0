"""Distances of drawn photos from photos, class-agnostic."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.photo_draws import draws_table

TABLE = TableDefinition(
    "cifar-agnostic-draws",
    "CIFAR-10, class-agnostic, one draw of each",
    partial(draws_table, protocol="agnostic"),
    order=42,
)
