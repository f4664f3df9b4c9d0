"""Distances of separated photos from photos, animals with vehicles."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.photo_table import photo_table

TABLE = TableDefinition(
    "cifar-split",
    "CIFAR-10, animals with vehicles",
    partial(photo_table, protocol="split"),
    order=50,
)
