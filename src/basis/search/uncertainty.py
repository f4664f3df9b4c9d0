"""What the draws of a posterior say together: intervals, and the modes that they fall into."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.search.ranking import align

NEAR = 1 / 6
"""Draws within this root-mean-square distance, in spreads of the prior, show the same thing."""
# Means of modes are apart by more than so many deviations of the draws within them: counted over
# all values, where chance alone makes a draw stand 1.0 away from the mean of the others; and along
# the line between the means, where the halves of a Gaussian are 2.7 apart.
_WIDE, _ALONG = 1.5, 4.0
_MOST = 8  # modes that are looked for


@dataclass(frozen=True)
class Mode:
    """One explanation of a mixture.

    Attributes:
        weight: Share of the samples that show it; the weights of a mixture's modes add up to 1.
        sources: The mean of those samples, (k, channels, *size).
        members: Their numbers among the samples.
    """

    weight: float
    sources: Tensor
    members: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Mode(weight={self.weight:.3g}, members={self.members})"


def find_modes(
    samples: Tensor, spread: float, exchangeable: Tensor | None = None
) -> tuple[Mode, ...]:
    """The modes that the samples of one mixture fall into, the heaviest first.

    Samples are grouped by average linkage. Of all numbers of groups the largest is taken whose
    means are apart by more than `NEAR` and by more than the samples within them scatter.

    Args:
        samples: With sources in one order, (samples, k, channels, *size).
        spread: Of the prior, the unit of distances.
        exchangeable: Which sources can be exchanged, (k, k) of bool. Groups that differ by an
            exchange alone are one.
    """
    flat = samples.detach().flatten(1).double().cpu().numpy()
    groups = next(
        found for found in _groupings(flat) if len(found) == 1 or _apart(flat, found, spread)
    )
    groups.sort(key=lambda g: (-len(g), g))
    if exchangeable is not None and len(groups) > 1:
        samples, groups = _exchanged(samples, groups, spread, exchangeable)
    return tuple(Mode(len(g) / len(flat), samples[list(g)].mean(dim=0), tuple(g)) for g in groups)


def _exchanged(
    samples: Tensor, groups: list[list[int]], spread: float, allowed: Tensor
) -> tuple[Tensor, list[list[int]]]:
    """Groups joined where the sources of one are those of another in another order."""
    samples, joined = samples.clone(), [sorted(groups[0])]
    for group in groups[1:]:
        for other in joined:
            mean = samples[other].mean(dim=0, keepdim=True)
            moved = align(samples[group], mean.expand_as(samples[group]), allowed)
            both = torch.cat([samples[other], moved]).flatten(1).double().cpu().numpy()
            rows = [list(range(len(other))), list(range(len(other), len(both)))]
            if not _apart(both, rows, spread):
                samples[group] = moved
                other += group
                other.sort()
                break
        else:
            joined.append(sorted(group))
    joined.sort(key=lambda g: (-len(g), g))
    return samples, joined


def _groupings(flat: np.ndarray) -> Sequence[list[list[int]]]:
    """Groups of rows, from the most that are looked for down to one."""
    if len(flat) == 1:
        return [[[0]]]
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(flat, "average")
    found = []
    for count in range(min(_MOST, max(2, len(flat) // 4)), 0, -1):
        labels = fcluster(tree, count, "maxclust")
        found.append([np.flatnonzero(labels == one).tolist() for one in np.unique(labels)])
    return found


def _apart(flat: np.ndarray, groups: list[list[int]], spread: float) -> bool:
    """Whether the means of all groups are farther apart than the rows scatter about them."""
    means = np.stack([flat[g].mean(axis=0) for g in groups])
    off = np.concatenate([flat[g] - mean for g, mean in zip(groups, means, strict=True)])
    free = max(1, len(flat) - len(groups))
    scatter = math.sqrt(np.square(off).sum() / free)
    least = NEAR * spread * math.sqrt(flat.shape[1])
    for one, other in itertools.combinations(means, 2):
        distance = float(np.linalg.norm(one - other))
        if distance <= max(least, _WIDE * scatter):
            return False
        along = math.sqrt(np.square(off @ (one - other) / distance).sum() / free)
        if distance <= _ALONG * along:
            return False
    return True


def central_interval(samples: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Bounds between which a further draw lies with this probability, value by value.

    Between order statistics r and n + 1 - r of n draws lies a further one with probability
    (n + 1 - 2 r) / (n + 1), whatever the distribution. Where n is too small for the level, it is
    taken to be normal: mean and deviation of the draws with the quantile of Student's t.

    Args:
        samples: (batch, samples, ...).
        level: The probability, between 0 and 1.

    Returns:
        Lower and upper bounds, (batch, ...).
    """
    if not 0 < level < 1:
        raise BasisError(f"the level of an interval must be between 0 and 1, not {level!r}")
    n = samples.shape[1]
    place = (1 - level) / 2 * (n + 1) - 1  # of the lower order statistic, counted from 0
    if place >= 0:
        ordered = samples.sort(dim=1).values
        return _between(ordered, place), _between(ordered, n - 1 - place)
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, n - 1)) * math.sqrt(1 + 1 / n)
    mean, deviation = samples.mean(dim=1), samples.std(dim=1)
    return mean - reach * deviation, mean + reach * deviation


def check_spread(count: int, drawn: bool) -> None:
    """Refuses to tell how far one sample, or the candidates of a search, scatter."""
    if count < 2 or not drawn:
        what = "a search's candidates have" if not drawn else "one sample has"
        raise BasisError(
            f"{what} no deviation to tell: separate(..., samples=20) draws as many samples as 90 % "
            "intervals need"
        )


def _between(ordered: Tensor, place: float) -> Tensor:
    """The order statistic at a place that need not be whole, straight between its neighbours."""
    below = min(int(place), ordered.shape[1] - 1)
    above = min(below + 1, ordered.shape[1] - 1)
    return torch.lerp(ordered[:, below], ordered[:, above], place - below)
