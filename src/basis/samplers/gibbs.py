"""Split Gibbs where modes are decided, Langevin dynamics where they are filled.

Above `sigma_turn`: alternate between the noisy and the clean signal, each drawn in closed form. The
clean signal given the noisy one is Gaussian to second order, with the mean and the variance that
the prior knows; given the mixture as well it is still Gaussian, and drawing it needs no inner loop.
The alternation is that of DAPS (Zhang et al. 2024, arXiv:2407.01521), whose inner Langevin dynamics
the closed form replaces.

A variance for each value cannot say that values move together, so that the alternation is wrong
within a mode where they do. Below `sigma_turn` preconditioned Langevin steps follow, which ask for
the score alone and are right for any prior as steps grow in number. Where the priors know how
values move together (`basis.priors.Spectrum`), the clean signal is drawn by that, at every level.

Down to the last level the alternation feeds on itself: detail goes to the source that is less sure
of its values, which makes the other one smoother and surer, until one source has everything.
Variances that are brought nearer to each other (`even`) hold detail where it belongs: half of the
way keeps the energies of sources that a run begins from what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from basis.samplers.problem import Problem
from basis.samplers.sampler import (
    Sampler,
    State,
    check_numbers,
    check_share,
    check_switch,
    geometric,
)
from basis.samplers.steps import LangevinSteps, draw_clean, first_guess


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Denoise, draw, meet the mixture, add noise again; then Langevin: one network call a step.

    It samples the posterior up to the size and the number of its steps: the last state is a sample
    with noise sigma_min on it. Most steps go to the noise levels above `sigma_turn`, where it is
    decided what belongs to which source.
    """

    name: ClassVar[str] = "gibbs"
    spreads: ClassVar[tuple[float, float]] = (3.0, 0.05)
    """First and last noise level by default, in spreads of the prior."""

    steps: int = 98
    """steps in all"""
    sigma_max: float | None = None
    """first noise level; 3 spreads of the prior by default"""
    sigma_turn: float | None = None
    """where Langevin dynamics take over; by default 7/6 spreads, or where the prior says"""
    sigma_min: float | None = None
    """last noise level; 0.05 spreads by default"""
    share: float = 0.61
    """share of the steps spent above sigma_turn"""
    bend: float = 1.0
    """above 1: more of the steps above sigma_turn at their largest noise levels"""
    rate: float = 1.0
    """step size of the Langevin steps in units of sigma^2"""
    weight: float = 4.0
    """likelihood weight of the Langevin steps: gamma^2 = sigma^2 / weight times the gain squared"""
    temperature: float = 1.0
    """scales the noise of the draws; 0 takes means instead, which no longer samples"""
    cooling: float = 0.0
    """share of the temperature that is lost on the way to sigma_turn; above 0 no longer samples"""
    together: bool = True
    """draw values that move together so, down to the last level, where priors know how they do"""
    even: float = 0.0
    """how far variances of sources are made alike: 0 as the priors know them, 1 wholly"""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            steps=1,
            sigma_max=0.0,
            sigma_turn=0.0,
            sigma_min=0.0,
            bend=0.0,
            rate=0.0,
            weight=0.0,
            temperature=0,
        )
        check_share(self.share)
        check_share(self.cooling, "cooling")
        check_share(self.even, "even")
        check_switch(self.together, "together")

    def run(self, problem: Problem) -> Iterator[State]:
        first, turn, last = self._levels(problem, self.sigma_max, self.spreads[0])
        levels = self.noise_levels(first, turn, last)
        yield from self._walk(problem, first_guess(problem), *levels)

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        first, turn, last = self._levels(problem, sigma, 1)
        yield from self._walk(problem, clean, *self.noise_levels(first, turn, last))

    def noise_levels(
        self, first: float, turn: float, last: float
    ) -> tuple[list[float], list[float]]:
        """The levels above the turn, with the one that they end at, and those of Langevin steps.

        All steps are above where no noise levels are below for Langevin steps, and none where the
        first level is the turn.
        """
        share = (self.share if turn > last else 1.0) if first > turn else 0.0
        slow = round(share * self.steps)
        above = geometric(first, turn, slow + 1, self.bend)
        return above, geometric(above[-1], last, self.steps - slow) if slow < self.steps else []

    def _levels(
        self, problem: Problem, first: float | None, spreads: float
    ) -> tuple[float, float, float]:
        """The first noise level (so many spreads by default), the turn and the last one."""
        turn = min(prior._switch_level for prior in problem.priors)
        given = (first, self.sigma_turn, self.sigma_min)
        least = self.spreads[1]
        if self.together and problem.draws_together:
            turn = least
        found = problem.levels(given, (spreads, max(turn, least), least))
        return found[0], found[1], found[2]

    def _walk(
        self, problem: Problem, clean: Tensor, above: list[float], below: list[float]
    ) -> Iterator[State]:
        """Goes down from clean signals that are noised to the first level."""
        x = clean + above[0] * problem.noise.normal(clean)
        for step, (sigma, after) in enumerate(itertools.pairwise(above), start=1):
            heat = self.temperature * (1 - self.cooling * step / (len(above) - 1))
            clean = draw_clean(problem, x, sigma, heat, together=self.together, even=self.even)
            x = clean + after * problem.noise.normal(x)
            yield State(x, after, step, self.steps, level_done=True)
        move = LangevinSteps(problem, self.rate, self.weight, self.temperature)
        for step, sigma in enumerate(below, start=len(above)):
            x = move(x, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
