"""Which classes a network in training is told that an item may be of.

Half of the items come with their own class, a quarter with nothing, and a quarter with a set of
classes that holds their own: so the network learns the distribution of one class, of all together
(Ho and Salimans 2022, arXiv:2207.12598) and of any in between, such as digits below five.
"""

from __future__ import annotations

import torch
from torch import Tensor

from basis.nn import class_weights


def draw_told(labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """What is told of items with these labels, (batch,): `class_weights`, (batch, classes).

    Of a set, every class is as likely to be the item's own where all are as frequent in the data.
    """
    own = _own(labels, classes)
    coin = torch.rand(len(labels), 1, generator=generator)
    others = torch.rand(len(labels), classes, generator=generator) < 0.5
    member = torch.where(coin < 0.5, own, torch.where(coin < 0.75, True, own | others))
    return class_weights(member)


def own_class(labels: Tensor, classes: int) -> Tensor:
    """The same where every item comes with its own class alone."""
    return class_weights(_own(labels, classes))


def _own(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).bool()
