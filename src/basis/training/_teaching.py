"""Learning a gradient from another prior: on noised signals, and on states of separations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from basis._errors import BasisError
from basis._tensors import per_item
from basis.families import Family
from basis.nn import Energy
from basis.priors import Prior
from basis.store import load_prior
from basis.training._config import TrainConfig
from basis.training._dual_score import DualScore
from basis.training._objectives import Likelihood, Objective
from basis.training._processes import Processes
from basis.training._signals import Signals
from basis.training._visited import Visited


class Lessons:
    """A teacher's answers, at noised signals and at states that separations visit.

    They carry no noise of sampling, and are there for states that are no noised signal, on which
    a separation depends. Chains that visit them are moved by the teacher's means or, every other
    one, by the model's own, so that it learns where its own mistakes lead; all by the teacher's
    variances.

    Args:
        teacher: A prior of the same signals.
        visited: The chains.
    """

    def __init__(self, teacher: Prior, visited: Visited) -> None:
        self.teacher, self.visited = teacher.eval().requires_grad_(False), visited
        self._states: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, teacher: Prior, images: Tensor, config: TrainConfig) -> Lessons:
        """With as many visited states as images in a batch, at levels that the teacher knows."""
        count = (config.batch + 1) // 2
        return cls(teacher, Visited.known_to(teacher, images, count, *config.noise[:2]))

    def ask(self, clean: Tensor, noisy: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noised signals with the states after them, their noise levels, and what to learn there.

        Shapes:
            clean, noisy: (batch, channels, *size), and sigma (batch,).
            What is returned has batch + states rows.
        """
        count, teacher = len(clean), self.teacher
        states, levels = self.visited.states()
        x = torch.cat([noisy, states.to(noisy)])
        s = torch.cat([sigma, levels.to(sigma)])
        low, high = teacher.sigma_min, teacher.sigma_max
        with torch.no_grad():
            mean, variance = teacher.moments(x, s.clamp(low, high))
        self._states = mean[count:], variance[count:]
        # Beyond the teacher's noise levels the signal itself is the target, as without a teacher.
        beyond = per_item((sigma < low) | (sigma > high), clean).bool()
        return x, s, torch.cat([torch.where(beyond, clean, mean[:count]), mean[count:]])

    def move(self, own: Tensor) -> None:
        """A step of the chains, by the model's own means of all that was asked about."""
        assert self._states is not None
        mean, variance = self._states
        by_model = torch.arange(len(mean), device=mean.device) // 2 % 2 == 1
        moved = torch.where(per_item(by_model, mean).bool(), own[-len(mean) :].detach(), mean)
        self.visited.move(moved, variance)


class _Visiting(Objective):
    """An objective with lessons, whose chains are part of a run's state."""

    lessons: Lessons

    def tensors(self) -> dict[str, Tensor]:
        return self.lessons.visited.tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.lessons.visited.load(tensors)


class Taught(_Visiting, Likelihood):
    """Code length of noisy signals, and the error of the gradient against a teacher's.

    Args:
        lessons: What the teacher says.
        score, spread, steps, unit: As for `Likelihood`.
    """

    def __init__(
        self,
        lessons: Lessons,
        score: float,
        spread: float,
        *,
        steps: float = 255,
        unit: float = 1.0,
    ) -> None:
        super().__init__(score, spread, steps=steps, unit=unit)
        self.lessons = lessons

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        x, s, target = self.lessons.ask(clean, noisy, sigma)
        code, gradient = self.code_and_gradient(model, x, s)
        self.lessons.move(x + per_item(s, x).square() * gradient)
        error = self.errors(gradient, x, target, s).mean()
        return code[: len(clean)].mean() + self.score * error


class TaughtEnergy(_Visiting, DualScore):
    """Dual score matching of an energy whose gradient is held to a teacher's.

    Args:
        lessons: What the teacher says.
        dual, unit: As for `DualScore`.
    """

    def __init__(self, lessons: Lessons, dual: float = 1.0, unit: float = 1.0) -> None:
        super().__init__(dual, unit)
        self.lessons = lessons

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        assert isinstance(model, Energy)
        x, s, target = self.lessons.ask(clean, noisy, sigma)
        by_x, by_level = model.slopes(x, s.log())
        self.lessons.move(x + per_item(s, x).square() * by_x)
        error = self.by_signal(model, by_x, x, target, s)
        return error + self.dual * self.by_level(by_level[: len(clean)], clean, noisy, sigma)


def find_teacher(
    teacher: str | Path | Prior | None,
    family: Family,
    signals: Signals,
    score: float,
    root: str | Path | None,
    device: torch.device | str,
) -> Prior | None:
    """The prior of this name or folder; refuses one that cannot teach a model of these signals."""
    if teacher is None:
        return None
    if family.objective not in ("likelihood", "energy"):
        raise BasisError(f"a teacher goes with models with a likelihood, not with {family.kind}")
    if family.objective == "likelihood" and not score:
        raise BasisError("a teacher teaches the gradient, whose weight (score) must be more than 0")
    if Processes().count > 1:
        raise BasisError("a teacher goes with a single process")
    if not isinstance(teacher, Prior):
        teacher = load_prior(teacher, root=root, device=device)
    if teacher.shape != signals.shape:
        raise BasisError(
            f"teacher {teacher.name!r} is of signals of shape {teacher.shape}, not {signals.shape}"
        )
    if (teacher.low, teacher.high) != (signals.low, signals.high):
        raise BasisError(
            f"teacher {teacher.name!r} has values from {teacher.low} to {teacher.high}, the data "
            f"from {signals.low} to {signals.high}"
        )
    return teacher
