"""Weights, and numbers of sources, that are not known on the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import natural, number, progress_bar
from basis.errors import BasisError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from basis.mixings.mixing import Mixing
    from basis.priors.prior import Prior
    from basis.result import Result
    from basis.samplers.sampler import Sampler


UNKNOWN = "unknown"


def weight(text: str) -> float | None:
    """A weight, or None for one to estimate, for argparse."""
    return None if text == UNKNOWN else number(text)


def source_count(text: str) -> int | str:
    """A number of sources, or "unknown", for argparse."""
    return UNKNOWN if text == UNKNOWN else natural(text)


def is_unknown(args: argparse.Namespace) -> bool:
    """Whether weights or the number of sources are to be estimated."""
    return args.k == UNKNOWN or any(a is None for row in args.alphas or () for a in row)


def check_unknown(args: argparse.Namespace) -> None:
    """Refuses what does not go with unknown weights before anything is read."""
    if not is_unknown(args):
        return
    if args.k == UNKNOWN and args.alphas:
        raise BasisError("--k unknown takes weights of 1: leave --alphas out")
    more = (args.grey, args.mask, args.noise, args.keep, args.clipped, args.rounded)
    if any(more) or len(args.alphas or ()) > 1:
        raise BasisError(
            "unknown weights go with plain mixtures: leave out --grey, --mask, --noise, --keep, "
            "--clipped, --rounded and further rows of --alphas"
        )


def known_rows(args: argparse.Namespace) -> list[list[float]] | None:
    """Rows of weights to mix images of a data set with; 1 stands for those to estimate."""
    if args.k == UNKNOWN:
        return [[1.0, 1.0]]
    rows: list[list[float | None]] | None = args.alphas
    if is_unknown(args) and rows and len(rows[0]) == 1:
        rows = [[None, None]]
    return [[1.0 if a is None else a for a in row] for row in rows] if rows else None


def separate_blindly(
    args: argparse.Namespace,
    mixture: Tensor,
    priors: Sequence[Prior],
    sampler: Sampler | None,
) -> tuple[Result, Mixing]:
    """The result with estimated weights, and the mixing that they make."""
    from basis._separate import separate
    from basis.mixings.per_item import PerItemMixing

    what: dict[str, Any] = {"sources": UNKNOWN}
    if args.k != UNKNOWN:
        row = args.alphas[0]
        lone = row == [None]  # --alphas unknown: of as many sources as --k says
        count = args.k or max(2, len(priors))
        what = {"alphas": UNKNOWN, "sources": count} if lone else {"alphas": row}
    with progress_bar("separating") as progress:
        result = separate(
            mixture,
            priors[0] if len(priors) == 1 else priors,
            **what,
            sampler=sampler,
            effort=args.effort,
            samples=args.samples,
            choose=args.choose,
            seed=args.seed,
            finish=not args.no_finish,
            chunk=args.chunk,
            progress=progress,
        )
    assert result.alphas is not None
    return result, PerItemMixing(result.alphas)
