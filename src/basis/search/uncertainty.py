"""Statistics of posterior samples: intervals, and the modes that the samples belong to."""

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
"""Samples within this root-mean-square distance, in standard deviations of the prior, are alike."""
# Modes are apart by more than this number of standard deviations of the samples within them: over
# all values, where chance alone puts a sample 1.0 from the mean of the others, and along the line
# between the means, where the halves of a Gaussian are 2.7 apart.
_OVERALL, _ALONG = 1.5, 4.0
_MOST = 8  # the largest number of modes


@dataclass(frozen=True)
class Mode:
    """A mode of the posterior: one distinct answer.

    Attributes:
        weight: The fraction of samples in it; the weights of an item's modes add up to 1.
        sources: The mean of these samples, (k, channels, *size).
        members: The indices of these samples.
    """

    weight: float
    sources: Tensor
    members: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Mode(weight={self.weight:.3g}, members={self.members})"


def find_modes(samples: Tensor, std: float, exchangeable: Tensor | None = None) -> tuple[Mode, ...]:
    """The modes of the samples of one item, by descending weight.

    Samples are clustered by average linkage. The number of clusters is the largest for which their
    means are apart by more than `NEAR` and by more than the samples within them vary.

    Args:
        samples: (samples, k, channels, *size), sources in one order.
        std: The standard deviation of the prior, the unit of distances.
        exchangeable: Which sources can be exchanged, (k, k) of bool. Clusters that differ only by
            an exchange are one mode.
    """
    flat = samples.detach().flatten(1).double().cpu().numpy()
    groups = next(
        found for found in _groupings(flat) if len(found) == 1 or _apart(flat, found, std)
    )
    groups.sort(key=lambda g: (-len(g), g))
    if exchangeable is not None and len(groups) > 1:
        samples, groups = _exchanged(samples, groups, std, exchangeable)
    return tuple(Mode(len(g) / len(flat), samples[list(g)].mean(dim=0), tuple(g)) for g in groups)


def _exchanged(
    samples: Tensor, groups: list[list[int]], std: float, allowed: Tensor
) -> tuple[Tensor, list[list[int]]]:
    """Merges groups whose sources differ only in their order."""
    samples, joined = samples.clone(), [sorted(groups[0])]
    for group in groups[1:]:
        for other in joined:
            mean = samples[other].mean(dim=0, keepdim=True)
            moved = align(samples[group], mean.expand_as(samples[group]), allowed)
            both = torch.cat([samples[other], moved]).flatten(1).double().cpu().numpy()
            rows = [list(range(len(other))), list(range(len(other), len(both)))]
            if not _apart(both, rows, std):
                samples[group] = moved
                other += group
                other.sort()
                break
        else:
            joined.append(sorted(group))
    joined.sort(key=lambda g: (-len(g), g))
    return samples, joined


def _groupings(flat: np.ndarray) -> Sequence[list[list[int]]]:
    """Clusterings of rows, from the largest number of clusters down to one."""
    if len(flat) == 1:
        return [[[0]]]
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(flat, "average")
    found = []
    for count in range(min(_MOST, max(2, len(flat) // 4)), 0, -1):
        labels = fcluster(tree, count, "maxclust")
        found.append([np.flatnonzero(labels == one).tolist() for one in np.unique(labels)])
    return found


def _apart(flat: np.ndarray, groups: list[list[int]], std: float) -> bool:
    """Whether the means of all groups are farther apart than the rows vary around them."""
    means = np.stack([flat[g].mean(axis=0) for g in groups])
    off = np.concatenate([flat[g] - mean for g, mean in zip(groups, means, strict=True)])
    free = max(1, len(flat) - len(groups))
    variation = math.sqrt(np.square(off).sum() / free)
    least = NEAR * std * math.sqrt(flat.shape[1])
    for one, other in itertools.combinations(means, 2):
        distance = float(np.linalg.norm(one - other))
        if distance <= max(least, _OVERALL * variation):
            return False
        along = math.sqrt(np.square(off @ (one - other) / distance).sum() / free)
        if distance <= _ALONG * along:
            return False
    return True


def central_interval(samples: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Bounds between which another sample lies with this probability, for each value.

    Another sample lies between order statistics r and n + 1 - r of n samples with probability
    (n + 1 - 2 r) / (n + 1), whatever the distribution. If n is too small for the level, values are
    taken to be normal, and the quantile of Student's t is used.

    Args:
        samples: (batch, samples, ...).
        level: The probability, between 0 and 1.

    Returns:
        Lower and upper bounds, (batch, ...).
    """
    if not 0 < level < 1:
        raise BasisError(f"the level of an interval must be between 0 and 1, not {level!r}")
    n = samples.shape[1]
    rank = (1 - level) / 2 * (n + 1) - 1  # of the lower order statistic, counted from 0
    if rank >= 0:
        ordered = samples.sort(dim=1).values
        return _order_statistic(ordered, rank), _order_statistic(ordered, n - 1 - rank)
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, n - 1)) * math.sqrt(1 + 1 / n)
    mean, std = samples.mean(dim=1), samples.std(dim=1)
    return mean - reach * std, mean + reach * std


def _order_statistic(ordered: Tensor, rank: float) -> Tensor:
    """The order statistic of a rank that need not be an integer, by linear interpolation."""
    below = min(int(rank), ordered.shape[1] - 1)
    above = min(below + 1, ordered.shape[1] - 1)
    return torch.lerp(ordered[:, below], ordered[:, above], rank - below)
