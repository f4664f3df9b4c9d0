"""What a baseline is: another way to separate, fitted on the same training images and measured on the same mixtures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
Tell = Callable[[float], None]
"""Told the share of a fit that is done."""


def _nobody(share: float) -> None:
    """Listens to nothing."""


@dataclass(frozen=True)
class Job:
    """How a baseline is fitted.

    Attributes:
        size: How much to spend, as a share of the published or full effort.
        seed: Seed of everything drawn.
        tell: Told how far it is.
    """

    size: float = 1.0
    seed: int = 0
    tell: Tell = _nobody

    def steps(self, images: int, batch: int) -> int:
        """Batches of this job where the full effort sees so many images."""
        return max(2, int(self.size * images / batch))

    def part(self, number: int, count: int) -> Job:
        """The same for one of several parts, with a seed of its own."""
        return replace(
            self, seed=self.seed + number, tell=lambda share: self.tell((number + share) / count)
        )


def each_once(groups: Sequence[Tensor], job: Job, learn: Callable[[Tensor, Job], T]) -> list[T]:
    """What is learned of every group; groups that are one and the same are learned once."""
    learned: list[T] = []
    for number, group in enumerate(groups):
        same = next((i for i in range(number) if groups[i] is group), None)
        learned.append(
            learn(group, job.part(number, len(groups))) if same is None else learned[same]
        )
    job.tell(1.0)
    return learned


class Baseline(nn.Module):
    """Another method, behind the interface that the tables use.

    Attributes:
        title: Its name in a table.
        reference: Where it comes from.
        supervised: Whether it is trained on mixtures, which the priors of this package never are.
        measured: Mixtures that the full table measures it on.
    """

    title = ""
    reference = ""
    supervised = False
    measured = 1024

    def fit(self, groups: Sequence[Tensor], job: Job) -> None:
        """Learns what it needs from training images.

        Args:
            groups: For each source the images it may come from, float in [0, 1], (n, channels, height, width); the same
                for all sources of a class-agnostic task.
            job: How much to spend, from which seed, and whom to tell.
        """

    @abstractmethod
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        """The sources of sum_i x_i, (batch, channels, height, width) to (batch, k, channels, height, width)."""


def draw_mixture(
    groups: Sequence[Tensor], count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random sources, one of each group, (count, k, ...), and their sum."""
    sources = torch.stack(
        [g[torch.randint(len(g), (count,), generator=generator)] for g in groups], dim=1
    )
    return sources, sources.sum(dim=1)


def cosine_factor(step: int, steps: int) -> float:
    """A step size that rises over the first twentieth and falls to nothing."""
    return min(1.0, 20 * (step + 1) / steps, 2 * (steps - step) / steps)
