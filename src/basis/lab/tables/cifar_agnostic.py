"""Distances of separated photos from photos, class-agnostic."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.photo_table import photo_table

TABLE = TableDefinition(
    "cifar-agnostic",
    "CIFAR-10, class-agnostic",
    partial(photo_table, protocol="agnostic"),
    order=40,
)
