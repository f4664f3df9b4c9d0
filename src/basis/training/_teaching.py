"""Learning a gradient from another prior: on noised signals, and on states of separations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from basis._errors import BasisError
from basis._tensors import per_item
from basis.families import Family
from basis.priors import Prior
from basis.store import load_prior
from basis.training._config import TrainConfig
from basis.training._objectives import Likelihood
from basis.training._processes import Processes
from basis.training._signals import Signals
from basis.training._visited import Visited


class Taught(Likelihood):
    """Code length of noisy signals, and the error of the gradient against a teacher's.

    A teacher's answer carries no noise of sampling, and is there for states that are no noised
    signal: those that separations visit, on which a separation depends. Chains that visit them are
    moved by the teacher's means or, every other one, by the model's own, so that it learns where
    its own mistakes lead; all by the teacher's variances.

    Args:
        teacher: A prior of the same signals.
        visited: The chains.
        score, spread, steps, unit: As for `Likelihood`.
    """

    def __init__(
        self,
        teacher: Prior,
        visited: Visited,
        score: float,
        spread: float,
        *,
        steps: float = 255,
        unit: float = 1.0,
    ) -> None:
        super().__init__(score, spread, steps=steps, unit=unit)
        self.teacher, self.visited = teacher.eval().requires_grad_(False), visited

    @classmethod
    def of(
        cls,
        teacher: Prior,
        images: Tensor,
        config: TrainConfig,
        spread: float,
        *,
        steps: float,
        unit: float,
    ) -> Taught:
        """With as many visited states as images in a batch, at levels that the teacher knows."""
        visited = Visited.known_to(teacher, images, (config.batch + 1) // 2, *config.noise[:2])
        return cls(teacher, visited, config.score, spread, steps=steps, unit=unit)

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        count, teacher = len(clean), self.teacher
        states, levels = self.visited.states()
        x = torch.cat([noisy, states.to(noisy)])
        s = torch.cat([sigma, levels.to(sigma)])
        low, high = teacher.sigma_min, teacher.sigma_max
        with torch.no_grad():
            mean, variance = teacher.moments(x, s.clamp(low, high))
        code, gradient = self.code_and_gradient(model, x, s)
        own = (x + per_item(s, x).square() * gradient).detach()
        by_model = torch.arange(len(states), device=x.device) // 2 % 2 == 1
        moved = torch.where(per_item(by_model, states).bool(), own[count:], mean[count:])
        self.visited.move(moved, variance[count:])
        # Beyond the teacher's noise levels the signal itself is the target, as without a teacher.
        beyond = per_item((sigma < low) | (sigma > high), clean).bool()
        target = torch.cat([torch.where(beyond, clean, mean[:count]), mean[count:]])
        return code[:count].mean() + self.score * self.errors(gradient, x, target, s).mean()

    def tensors(self) -> dict[str, Tensor]:
        return self.visited.tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.visited.load(tensors)


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
    if family.objective != "likelihood":
        raise BasisError(f"a teacher goes with models with a likelihood, not with {family.kind}")
    if not score:
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
