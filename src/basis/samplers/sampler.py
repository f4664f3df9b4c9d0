"""The interface of samplers: settings, and a loop that yields states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.settings import check_settings, setting

MOST = 1_000_000
"""The largest number of steps, levels or restarts."""


@dataclass(frozen=True)
class State:
    """The state of a sampler after a step.

    Attributes:
        x: The sources so far, (batch, sources, channels, *size).
        sigma: The noise level of x.
        step: Steps done.
        steps: Steps of the whole run.
        level_done: Whether this was the last step at its noise level.
    """

    x: Tensor
    sigma: float
    step: int
    steps: int
    level_done: bool


@dataclass(frozen=True)
class Sampler(ABC):
    """Explores the posterior of a problem.

    A subclass is a frozen dataclass whose fields are its settings, each made by
    `basis.settings.setting`. Their texts give default noise levels in std: standard deviations of
    the values of the prior. A likelihood weight w means a Gaussian likelihood with
    gamma^2 = gain^2 sigma^2 / w plus the variance of the observation noise, with the gain of the
    mixing (`Mixing.gain`).
    """

    name: ClassVar[str]

    steps: int = setting(1, "number of steps", at_least=1, at_most=MOST)

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def run(self, problem: Problem) -> Iterator[State]:
        """Yields a state after every step; the last state is the sample."""

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        """Like `run`, from clean sources (batch, sources, channels, *size) noised to sigma."""
        raise BasisError(f"sampler {self.name!r} cannot start from an earlier result; use gibbs")

    @property
    def total_steps(self) -> int:
        """The number of steps of a run."""
        return self.steps

    @property
    def evaluations(self) -> int:
        """Network evaluations per source of a run."""
        return self.total_steps

    def settings(self) -> dict[str, Any]:
        """Name and settings, as the record of a run stores them."""
        return {"name": self.name, **asdict(self)}


def check_finite(x: Tensor) -> None:
    """Raises if a state, of any shape, has diverged."""
    if not torch.isfinite(x).all():
        raise BasisError(
            "the dynamics diverged: the prior returned ever larger values; `basis check` tests it"
        )


def geometric(first: float, last: float, count: int, power: float = 1.0) -> list[float]:
    """`count` numbers in geometric progression from first to last, both included.

    A power of more than 1 puts them closer together near the first and farther apart near the last.
    """
    if count == 1:
        return [last]
    return [first * (last / first) ** ((i / (count - 1)) ** power) for i in range(count)]
