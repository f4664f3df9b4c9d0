"""PSNR of every method on the same class-split pairs of digits."""

from __future__ import annotations

from functools import partial

from basis.lab.definition import TableDefinition
from basis.lab.mnist_table import psnr_table

TABLE = TableDefinition(
    "mnist-split", "MNIST, class-split pairs", partial(psnr_table, protocol="split"), order=30
)
