"""The interface of baselines: other methods, fitted on the same signals as the priors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from basis.errors import BasisError

T = TypeVar("T")


@dataclass(frozen=True)
class FitOptions:
    """How a baseline is fitted.

    Attributes:
        size: How much to compute, as a fraction of the full fit.
        seed: Seed of all random numbers.
        on_progress: Called with the fraction that is done.
    """

    size: float = 1.0
    seed: int = 0
    on_progress: Callable[[float], None] = lambda fraction: None

    def steps(self, images: int, batch: int) -> int:
        """Batches to train on where the full fit sees this number of images."""
        return max(2, int(self.size * images / batch))

    def part(self, number: int, count: int) -> FitOptions:
        """The options of one of several parts of a fit, with its own seed."""
        return replace(
            self,
            seed=self.seed + number,
            on_progress=lambda fraction: self.on_progress((number + fraction) / count),
        )


class Baseline(nn.Module):
    """A separation method without a generative prior of this package.

    Attributes:
        title: Its name in a table.
        measured: Mixtures that the full table measures it on.
        pictures: Whether it only accepts pictures, (channels, height, width).
        non_negative: Whether it only accepts values of at least 0.
    """

    title = ""
    measured = 1024
    pictures = True
    non_negative = False
    fitted = False

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        """Learns from training signals.

        Args:
            groups: For each source its possible signals, (n, channels, *size), float; the same
                tensor for all sources of a class-agnostic task. Pictures are in [0, 1].
            options: Size, seed and progress callback.
        """
        signals = groups[0]
        if self.pictures and signals.ndim != 4:
            raise BasisError(
                f"the baseline {self.title} needs pictures of shape (channels, height, width), not "
                f"signals of shape {tuple(signals.shape[1:])}"
            )
        smallest = min(float(g.min()) for g in groups)
        if self.non_negative and smallest < 0:
            raise BasisError(
                f"the baseline {self.title} needs values of at least 0, not {smallest:.3g}"
            )
        self._fit(groups, options)
        self.fitted = True

    @torch.no_grad()
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        """The sources of sum_i x_i: (batch, channels, *size) to (batch, k, channels, *size)."""
        if not self.fitted:
            raise BasisError(f"the baseline {self.title} is not fitted: call fit first")
        return self._separate(mixture, seed)

    @abstractmethod
    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None: ...

    @abstractmethod
    def _separate(self, mixture: Tensor, seed: int) -> Tensor: ...


def fit_each_group(
    groups: Sequence[Tensor], options: FitOptions, learn: Callable[[Tensor, FitOptions], T]
) -> list[T]:
    """Calls `learn` for every group; groups that are the same tensor are learned once."""
    learned: list[T] = []
    for number, group in enumerate(groups):
        same = next((i for i in range(number) if groups[i] is group), None)
        part = options.part(number, len(groups))
        learned.append(learn(group, part) if same is None else learned[same])
    options.on_progress(1.0)
    return learned


class Average(Baseline):
    """The mixture divided by the number of sources, for signals of any shape."""

    title = "mixture / k"
    pictures = False
    fitted = True

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k

    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        self.k = len(groups)

    def _separate(self, mixture: Tensor, seed: int) -> Tensor:
        return (mixture / self.k)[:, None].repeat_interleave(self.k, dim=1)
