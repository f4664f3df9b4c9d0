"""PSNR of every method on the same class-agnostic pairs of digits."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.mnist_table import psnr_table

TABLE = TableDefinition(
    "mnist-agnostic",
    "MNIST, class-agnostic pairs",
    partial(psnr_table, protocol="agnostic"),
    order=20,
)
