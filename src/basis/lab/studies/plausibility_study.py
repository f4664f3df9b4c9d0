"""How many wrong mixtures are flagged as implausible, and how many right ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.plots.charts import Table
from basis.priors.prior import Prior
from basis.result import Result


@dataclass(frozen=True)
class Case:
    """Mixtures of one kind: observations, and the weights that a user gives.

    Attributes:
        name: The kind.
        mixture: (count, channels, *size).
        alphas: Weights given, right or wrong.
        right: Whether these are mixtures as they should be.
    """

    name: str
    mixture: Tensor
    alphas: tuple[float, ...]
    right: bool = False


@dataclass(frozen=True)
class Flagged:
    """How many mixtures of a kind were called implausible."""

    name: str
    count: int
    flagged: int
    right: bool


def plausibility_cases(
    right: Tensor, wrong: Tensor, three: Tensor, other: Tensor, foreign: Tensor, *, seed: int = 0
) -> list[Case]:
    """Right mixtures of two sources in [0, 1], and eight kinds of wrong ones.

    Args:
        right: Sources of the right mixtures, (n, 2, channels, *size).
        wrong: Sources that the wrong ones are made of, (count, 2, ...).
        three: Mixtures of three, (count, 3, ...).
        other: Images of another kind, (2 count, ...).
        foreign: Samples of another prior, (2 count, ...).
        seed: Of wrong weights and noise.
    """
    count = len(wrong)
    if min(len(three), len(other) // 2, len(foreign) // 2) < count:
        raise BasisError(f"every kind needs sources of {count} mixtures")
    g = torch.Generator().manual_seed(seed)
    off = 0.2 + 0.2 * torch.rand(count, generator=g)
    shares = torch.stack([0.5 + off, 0.5 - off], dim=1)
    unequal = torch.einsum("bk,bk...->b...", shares, wrong)
    plain, half = wrong.sum(dim=1), count // 2
    one = torch.cat([three[:half].sum(dim=1), wrong[half:, 0]])
    shifted = torch.cat([plain[:half] + 0.2, 2 * plain[half:] - 2])
    both, equal = (1.0, 1.0), (0.5, 0.5)

    def pairs(images: Tensor) -> Tensor:
        return images[: 2 * count].unflatten(0, (count, 2)).sum(dim=1)

    return [
        Case("right", right.sum(dim=1), both, right=True),
        Case("weights off by 0.2 to 0.4", unequal, equal),
        Case("inverted", 1 - plain / 2, equal),
        Case("clipped at 1", plain.clamp(max=1), both),
        Case("noise", 2 * torch.rand(plain.shape, generator=g), both),
        Case("other images", pairs(other), both),
        Case("three sources, or one, taken for two", one, both),
        Case("shifted by 0.2, or to [-1, 1]", shifted, both),
        Case("samples of another prior", pairs(foreign), both),
    ]


def flag_cases(
    prior: Prior, cases: Sequence[Case], separate: Callable[[Case], Result]
) -> list[Flagged]:
    """Separates every case and counts what is called implausible."""
    rows = []
    for case in cases:
        plausible = separate(case).plausible
        if plausible is None:
            raise BasisError(
                f"prior {prior.name!r} has no typical energies: basis priors measure first"
            )
        wrong = int((~plausible).sum())
        rows.append(Flagged(case.name, len(plausible), wrong, case.right))
    return rows


def flagged_table(rows: Sequence[Flagged]) -> Table:
    """What was flagged of each kind, and of all wrong ones."""
    lines = [(r.name, str(r.count), f"{100 * r.flagged / r.count:.1f} %") for r in rows]
    wrong = [r for r in rows if not r.right]
    count, flagged = sum(r.count for r in wrong), sum(r.flagged for r in wrong)
    lines.append(("all wrong kinds", str(count), f"{100 * flagged / max(1, count):.1f} %"))
    return Table(("mixtures", "count", "called implausible"), lines)
