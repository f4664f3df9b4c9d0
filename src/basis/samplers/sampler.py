"""What a sampler is: settings, and a loop that yields states."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem


@dataclass(frozen=True)
class State:
    """Where a sampler stands.

    Attributes:
        x: The sources so far, (batch, sources, channels, *size).
        sigma: The noise level of x.
        step, steps: Steps done, and in all.
        level_done: Whether this was the last step at its noise level.
    """

    x: Tensor
    sigma: float
    step: int
    steps: int
    level_done: bool


@dataclass(frozen=True)
class Sampler(ABC):
    """Explores the posterior of a problem; its fields are its settings."""

    name: ClassVar[str]
    steps: int = 1

    @abstractmethod
    def run(self, problem: Problem) -> Iterator[State]:
        """Yields a state per step; the last one is the sample."""

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        """Goes down from clean sources that are noised to sigma, to look again around them."""
        raise BasisError(
            f"sampler {self.name!r} cannot start from an earlier answer: rounds after the first, "
            "and the polish, take gibbs"
        )

    @property
    def total(self) -> int:
        """Steps that a run takes."""
        return self.steps

    @property
    def calls(self) -> int:
        """Network calls per source that a run takes."""
        return self.total

    def settings(self) -> dict[str, Any]:
        """What a run's record says of its sampler."""
        return {"name": self.name, **asdict(self)}


def setting_texts(sampler: type[Sampler]) -> dict[str, str]:
    """What the docstring under each setting of a sampler says, for command lines and documents."""
    texts: dict[str, str] = {}
    for kind in reversed(sampler.__mro__):
        if not issubclass(kind, Sampler):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[field.target.id] = str(text.value.value)
    return texts


MOST = 1_000_000
"""The largest number of steps, levels or restarts."""


def check_numbers(sampler: Sampler, **least: float) -> None:
    """Refuses settings that are not finite numbers above these bounds.

    An integer bound may be met, and None (the default of many settings) is no number to refuse.
    What has an integer bound is a count, of a million at most: more would not end.
    """
    for name, bound in least.items():
        value = getattr(sampler, name)
        if value is None:
            continue
        whole = isinstance(bound, int)
        if not math.isfinite(value) or (value < bound if whole else value <= bound):
            relation = "at least" if whole else "more than"
            raise BasisError(f"{name} must be a number {relation} {bound:g}, not {value}")
        if whole and value > MOST:
            raise BasisError(f"{name} must be at most {MOST:,}, not {value}")


def check_finite(x: Tensor) -> None:
    """Refuses to go on from a state, of any shape, that blew up."""
    if not torch.isfinite(x).all():
        raise BasisError(
            "the dynamics diverged: the prior answers with ever larger values here; "
            "`basis check` says whether it is sound"
        )


def check_switch(value: object, name: str) -> None:
    """Refuses a setting that is neither True nor False."""
    if not isinstance(value, bool):
        raise BasisError(f"{name} must be True or False, not {value!r:.60}")


def check_share(value: float, name: str = "share") -> None:
    """Refuses what is no share, by the name of its setting."""
    if not 0 <= value <= 1:
        raise BasisError(f"{name} must be from 0 to 1, not {value}")


def geometric(first: float, last: float, count: int, bend: float = 1.0) -> list[float]:
    """`count` numbers in geometric progression, both ends among them.

    A bend of more than 1 lays them closer together near the first and farther apart near the last.
    """
    if count == 1:
        return [last]
    return [first * (last / first) ** ((i / (count - 1)) ** bend) for i in range(count)]


def two_paces(first: float, turn: float, last: float, steps: int, share: float) -> list[float]:
    """`steps` + 1 noise levels: a share of the steps from first to turn, the rest to last."""
    slow = min(steps - 1, max(1, round(share * steps))) if steps > 1 else 0
    return [
        *geometric(first, turn, slow + 1)[:slow],
        *geometric(turn if slow else first, last, steps - slow + 1),
    ]
