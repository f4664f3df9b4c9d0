"""Distances of drawn photos from photos, animals with vehicles."""

from __future__ import annotations

from functools import partial

from basis.reproduce._definition import TableDefinition
from basis.reproduce._photo_draws import draws_table

TABLE = TableDefinition(
    "cifar-split-draws",
    "CIFAR-10, animals with vehicles, one draw of each",
    partial(draws_table, protocol="split"),
    order=52,
)
