"""What a baseline is: another method, fitted and measured on the same signals as the priors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.unet import UNet, UNetConfig
from basis.training.muon import Muon

T = TypeVar("T")
OnProgress = Callable[[float], None]
"""A callback that takes the share of a fit that is done, from 0 to 1."""


def _ignore(share: float) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True)
class FitOptions:
    """How a baseline is fitted.

    Attributes:
        size: How much to spend, as a share of the published or full effort.
        seed: Seed of everything drawn.
        on_progress: Called with the share that is done.
    """

    size: float = 1.0
    seed: int = 0
    on_progress: OnProgress = _ignore

    def steps(self, images: int, batch: int) -> int:
        """Batches to train on where the full effort sees this number of images."""
        return max(2, int(self.size * images / batch))

    def part(self, number: int, count: int) -> FitOptions:
        """The options of one of several parts of a fit, with a seed of its own."""
        return replace(
            self,
            seed=self.seed + number,
            on_progress=lambda share: self.on_progress((number + share) / count),
        )


def fit_each_group(
    groups: Sequence[Tensor], options: FitOptions, learn: Callable[[Tensor, FitOptions], T]
) -> list[T]:
    """Calls `learn` for every group; groups that are the same tensor are learned once."""
    learned: list[T] = []
    for number, group in enumerate(groups):
        same = next((i for i in range(number) if groups[i] is group), None)
        learned.append(
            learn(group, options.part(number, len(groups))) if same is None else learned[same]
        )
    options.on_progress(1.0)
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

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        """Learns what it needs from training signals.

        Args:
            groups: For each source the signals it may come from, (n, channels, *size), float; the
                same tensor for all sources of a class-agnostic task. Pictures are in [0, 1].
            options: How much to spend, the seed and the progress callback.
        """

    @abstractmethod
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        """The sources of sum_i x_i: (batch, channels, *size) to (batch, k, channels, *size)."""


def require_pictures(method: Baseline, signals: Tensor) -> None:
    """Refuses signals that a network of two-dimensional convolutions cannot read."""
    if signals.ndim != 4:
        raise BasisError(
            f"the baseline {method.title} is for pictures of shape (channels, height, width), "
            f"not for signals of shape {tuple(signals.shape[1:])}"
        )


def require_non_negative(method: Baseline, signals: Tensor) -> None:
    """Refuses negative values, which no sum of non-negative parts explains."""
    if len(signals) and signals.min() < 0:
        raise BasisError(
            f"the baseline {method.title} is for values of at least 0, not {signals.min():.3g}"
        )


def require_fit(method: Baseline, learned: object) -> None:
    """Refuses to separate before `fit` was called."""
    if not learned:
        raise BasisError(f"the baseline {method.title} has learned nothing yet: call fit first")


def draw_mixture(
    groups: Sequence[Tensor], count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random sources, one of each group, (count, k, ...), and their sum."""
    sources = torch.stack(
        [g[torch.randint(len(g), (count,), generator=generator)] for g in groups], dim=1
    )
    return sources, sources.sum(dim=1)


def step_factor(step: int, steps: int) -> float:
    """The factor of the step size: rises over the first twentieth and falls to zero at the end."""
    return min(1.0, 20 * (step + 1) / steps, 2 * (steps - step) / steps)


class Average(Baseline):
    """The mixture divided by the number of sources, for signals of any shape."""

    title = "Average"

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        self.k = len(groups)

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        return (mixture / self.k)[:, None].repeat_interleave(self.k, dim=1)


class Separator(nn.Module):
    """A U-Net that reads a mixture and answers with masks: each source's share of every pixel.

    Args:
        channels: Of an image.
        k: Sources.
    """

    def __init__(self, channels: int, k: int) -> None:
        super().__init__()
        self.channels, self.k = channels, k
        self.network = UNet(UNetConfig(channels=channels * k, widths=(32, 64), blocks=(1, 2)))
        # Equal answers for all sources would stay equal under a loss that ignores their order.
        nn.init.normal_(self.network.leave.weight, std=0.02)

    def forward(self, mixture: Tensor) -> Tensor:
        """Sources that add up to the mixture.

        Shapes:
            mixture: (batch, channels, height, width).
            returns: (batch, k, channels, height, width).
        """
        x = (mixture / self.k - 0.5).repeat(1, self.k, 1, 1)
        logits = self.network(x, torch.zeros(len(x), device=x.device))
        shares = logits.unflatten(1, (self.k, self.channels)).softmax(dim=1)
        return shares * mixture[:, None]


def train(
    module: nn.Module,
    loss: Callable[[], Tensor],
    steps: int,
    on_progress: OnProgress,
    lr: float = 0.03,
) -> None:
    """Minimises a loss that draws its own batches."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(module.parameters())
    optimizer = Muon(parameters, lr=lr, adam_lr=lr / 10)
    module.train()
    for step in range(steps):
        value = loss()
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.set_factor(step_factor(step, steps))
        optimizer.step()
        on_progress((step + 1) / steps)
    module.eval().requires_grad_(False)
