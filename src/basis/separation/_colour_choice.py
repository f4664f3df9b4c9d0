"""Which of several colourings are shown, and in what order."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from basis._errors import BasisError

_DRAWN = 3  # colourings drawn for each one that is asked for, where they are to be diverse
_PLACES = 8  # along a side, at which the colours of two colourings are compared


def colourings_drawn(samples: int, diverse: bool) -> int:
    """How many colourings are drawn where `samples` are asked for; a single one is not diverse."""
    if diverse and samples < 2:
        raise BasisError(f"diverse colourings need samples of 2 or more, not {samples}")
    return samples * (_DRAWN if diverse else 1)


def by_plausibility(energies: Tensor) -> Tensor:
    """The places of colourings, the most plausible first: (batch, samples).

    Args:
        energies: (batch, samples), the least is the best; equal ones stay in their order.
    """
    return energies.argsort(dim=1, stable=True)


def far_apart(colours: Tensor, energies: Tensor, count: int) -> Tensor:
    """The places of colourings far apart in colour, the most plausible first: (batch, count).

    The most plausible one is always kept, and then, one at a time, the one that is farthest from
    those that are kept. (The least plausible are not left out first: the energy seems to prefer
    pale colours, so that what is left would be of one kind.)

    Args:
        colours: What was added to the grey, (batch, samples, 3, height, width).
        energies: (batch, samples), the least is the best.
        count: How many are kept.
    """
    order = by_plausibility(energies)
    rows = torch.arange(len(order))[:, None]
    # Hues of places and not of pixels: noise of the grain would make any two seem far apart.
    seen = F.adaptive_avg_pool2d(colours.flatten(0, 1), _PLACES)
    seen = seen.unflatten(0, colours.shape[:2])[rows, order].flatten(2)
    apart = torch.cdist(seen.double(), seen.double())
    kept = torch.zeros(len(order), 1, dtype=torch.long)
    nearest = apart[:, 0]
    for _ in range(count - 1):
        # A kept one is at no distance from itself; it must not be taken twice where all are alike.
        nearest = nearest.scatter(1, kept, -1.0)
        kept = torch.cat([kept, nearest.argmax(dim=1, keepdim=True)], dim=1)
        nearest = torch.minimum(nearest, apart[torch.arange(len(order)), kept[:, -1]])
    return order.gather(1, kept.sort(dim=1).values)
