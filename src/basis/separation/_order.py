"""Which source is which: sources that can be exchanged are put in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from basis import metrics
from basis.mixings import Mixing
from basis.priors import Prior
from basis.samplers import Problem
from basis.separation._ranking import Ranking

ORDER = Ranking(levels=(8 / 3, 16 / 3), draws=8)
"""What tells the order (a church, an animal, a small digit) shows at high noise."""


def same_prior(priors: Sequence[Prior]) -> Tensor:
    """Which sources have the same prior: (sources, sources) of bool."""
    return torch.tensor([[_same(a, b) for b in priors] for a in priors])


def _same(a: Prior, b: Prior) -> bool:
    """Whether two priors are one, or the same weights loaded twice."""
    if a is b:
        return True
    if a.card is None or b.card is None or type(a) is not type(b):
        return False
    return a.card.sha256 == b.card.sha256 != "" and a.describe() == b.describe()


def exchangeable(priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """Which sources can be exchanged with which, by prior and mixing: (sources, sources) of
    bool.
    """
    return mixing.alike & same_prior(priors)


def needs_order(priors: Sequence[Prior], mixing: Mixing) -> bool:
    """Whether sources that the mixing treats alike have different priors."""
    return bool((mixing.alike & ~same_prior(priors)).any())


def align(x: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """x with its exchangeable sources in the order that comes nearest to the reference.

    Args:
        x, reference: (batch, sources, channels, *size).
        allowed: (sources, sources) of bool, as `exchangeable` gives it.
    """
    if not bool((allowed & ~torch.eye(len(allowed), dtype=torch.bool)).any()):
        return x
    a, b = x.flatten(2), reference.flatten(2)
    distance = (a[:, :, None] - b[:, None]).square().mean(dim=3)
    # An exchange that is not allowed is farther than anything that is.
    far = distance.sum() + 1
    distance = distance + far * (~allowed).to(distance)
    order = metrics.match(-distance)
    return torch.stack([item[o] for item, o in zip(x, order, strict=True)])


def by_prior(
    problem: Problem, x: Tensor, seeds: Sequence[int], *, draws: int | None = None
) -> Tensor:
    """The same sources, those that the mixing treats alike in the order that their priors prefer.

    Sources with priors of their own that settled in the wrong order seldom find the way back.
    `draws` is how often noise is drawn to tell, eight times by default.
    """
    ranking = ORDER if draws is None else replace(ORDER, draws=draws)
    k = x.shape[1]
    # Turned by 0 to k - 1 places, every source comes before every prior once.
    turned = torch.stack([x.roll(-turn, dims=1) for turn in range(k)], dim=1)
    energy = ranking.energies(problem, turned, seeds)
    costs = energy.new_zeros(len(x), k, k)
    for turn in range(k):
        for place in range(k):
            costs[:, (place + turn) % k, place] = energy[:, turn, place]
    costs = costs.masked_fill(~problem.mixing.alike.to(costs.device), 1e12)
    order = metrics.match(-costs)
    return torch.stack([item[o] for item, o in zip(x, order, strict=True)])
