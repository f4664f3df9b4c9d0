"""Distances of drawn photos from photos, animals with vehicles."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.photo_draws import draws_table

TABLE = TableDefinition(
    "cifar-split-draws",
    "CIFAR-10, animals with vehicles, one draw of each",
    partial(draws_table, protocol="split"),
    order=52,
)
