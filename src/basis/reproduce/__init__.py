"""The paper's tables and figures, made again from scratch with the priors at hand. A new one is a function and a row here."""

from collections.abc import Callable
from functools import partial

from basis._figures import Table
from basis.reproduce._colour import colourisation, separation
from basis.reproduce._mnist import (
    ablation,
    histogram,
    psnr_table,
    repeats,
    states,
    teaser,
    uncurated,
)
from basis.reproduce._own import class_priors, scenes
from basis.reproduce._pieces import Piece, Workshop, told_if_missing
from basis.reproduce._priors import gradients, sample_likelihoods
from basis.reproduce._report import report, tables_markdown
from basis.reproduce._shards import Shard, Shards

_MAKERS: dict[str, Callable[[Workshop], Piece]] = {
    "teaser": teaser,
    "mnist-agnostic": partial(psnr_table, protocol="agnostic"),
    "mnist-split": partial(psnr_table, protocol="split"),
    "cifar-agnostic": partial(separation, protocol="agnostic"),
    "cifar-split": partial(separation, protocol="split"),
    "colour": colourisation,
    "class-priors": class_priors,
    "scenes": scenes,
    "histogram": histogram,
    "ablation": ablation,
    "gradients": gradients,
    "likelihoods": sample_likelihoods,
    "states": states,
    "repeats": repeats,
    "uncurated": uncurated,
}

PIECES = {name: told_if_missing(make) for name, make in _MAKERS.items()}
"""Everything that `basis reproduce` knows, in the order of the report."""

__all__ = ["PIECES", "Piece", "Shard", "Shards", "Table", "Workshop", "report", "tables_markdown"]
