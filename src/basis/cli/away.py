"""The flags of leading priors away from a weaker one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import device_from, number
from basis.errors import BasisError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from basis.priors.prior import Prior


def add_away(where: Any) -> None:
    """Adds the flags to a parser or a group of one."""
    where.add_argument(
        "--away",
        metavar="NAME|DIR",
        help="also lead away from this weaker prior of the same signals: nearer to what both were "
        "trained on (cifar10-small for cifar10)",
    )
    where.add_argument(
        "--away-strength", type=number, default=0.3, metavar="STRENGTH", help="how far (0.3)"
    )


def away_from(
    args: argparse.Namespace, priors: Sequence[Prior], *, finer: float | None = None
) -> list[Prior]:
    """Priors led away from the one that the flags name; as they are where none is named.

    Args:
        args: What `add_away` added, with a device and a data root.
        priors: Of one kind of signals.
        finer: The longest waves that are led, as a share of the longest side.
    """
    from basis.store.loading import load_prior

    if not args.away:
        return list(priors)
    if args.away_strength < 0:
        raise BasisError(f"--away-strength must be 0 or more, not {args.away_strength:g}")
    weaker = load_prior(args.away, root=args.data_root, device=device_from(args.device))
    return [prior.autoguide(weaker, args.away_strength, finer=finer) for prior in priors]
