"""Split Gibbs sampling at large noise levels, Langevin dynamics at small ones.

Above `sigma_switch`: alternate between the noisy and the clean signal, each drawn in closed form.
The clean signal given the noisy one is Gaussian to second order, with the mean and the variance
from the prior; conditioned on the observation it is still Gaussian, so that drawing it needs no
inner loop. The alternation is that of DAPS (Zhang et al. 2024, arXiv:2407.01521), whose inner
Langevin dynamics the closed form replaces.

A variance per value ignores correlations, so that the alternation has the wrong spread within a
mode. Below `sigma_switch` preconditioned Langevin steps follow, which need only the score and
converge for any prior as the number of steps grows. Where the priors know the correlations of
values (`basis.priors.Spectrum`), the clean signal is drawn with them at all levels.

The alternation can amplify itself at small noise levels: detail moves to the source with the larger
variance, which makes the other source smoother and its variance smaller, until one source has all
of it. `variance_shrinkage` moves the variances of the sources towards their mean, which prevents
this: a value of 0.5 preserves the energies of the sources that a run starts from.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from basis.samplers.problem import Problem
from basis.samplers.sampler import (
    MOST,
    LangevinSteps,
    Sampler,
    State,
    geometric,
    initial_guess,
    sample_clean,
)
from basis.settings import setting


@dataclass(frozen=True)
class Gibbs(Sampler):
    """Draws the clean signal given observation and noisy signal, adds noise; then Langevin steps.

    One network call per step. It samples the posterior up to the size and the number of its steps:
    the last state is a sample with noise sigma_min. Most steps are at noise levels above
    `sigma_switch`, where the modes are decided.
    """

    name: ClassVar[str] = "gibbs"
    default_range: ClassVar[tuple[float, float]] = (3.0, 0.05)
    """Default first and last noise level, in standard deviations of the prior."""

    steps: int = setting(98, "number of steps", at_least=1, at_most=MOST)
    sigma_max: float | None = setting(None, "first noise level; by default 3 std", above=0)
    sigma_switch: float | None = setting(
        None, "where Langevin steps start; by default 7/6 std or what the prior recommends", above=0
    )
    sigma_min: float | None = setting(None, "last noise level; by default 0.05 std", above=0)
    gibbs_fraction: float = setting(
        0.61, "fraction of the steps above sigma_switch", at_least=0, at_most=1
    )
    schedule_power: float = setting(
        1.0, "values above 1 put more Gibbs steps at large noise levels", above=0
    )
    rate: float = setting(1.0, "size of Langevin steps in units of sigma^2", above=0)
    weight: float = setting(
        4.0, "likelihood weight of Langevin steps, (sigma gain / gamma)^2", above=0
    )
    temperature: float = setting(
        1.0, "scale of the noise; 0 takes means, which does not sample the posterior", at_least=0
    )
    temperature_decay: float = setting(
        0.0, "fraction of the temperature lost at sigma_switch", at_least=0, at_most=1
    )
    correlated: bool = setting(True, "draw correlated values where the priors know correlations")
    variance_shrinkage: float = setting(
        0.0, "how far variances are moved to the mean over sources", at_least=0, at_most=1
    )

    def run(self, problem: Problem) -> Iterator[State]:
        levels = self._levels(problem, self.sigma_max, self.default_range[0])
        yield from self._descend(problem, initial_guess(problem), *self.noise_levels(*levels))

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        levels = self._levels(problem, sigma, 1)
        yield from self._descend(problem, clean, *self.noise_levels(*levels))

    def noise_levels(
        self, first: float, switch: float, last: float
    ) -> tuple[list[float], list[float]]:
        """The noise levels of the Gibbs steps, including the one they end at, and of the others.

        All steps are Gibbs steps where the switch is the last level, and none where it is the
        first.
        """
        fraction = (self.gibbs_fraction if switch > last else 1.0) if first > switch else 0.0
        count = round(fraction * self.steps)
        upper = geometric(first, switch, count + 1, self.schedule_power)
        return upper, geometric(upper[-1], last, self.steps - count) if count < self.steps else []

    def _levels(
        self, problem: Problem, first: float | None, default: float
    ) -> tuple[float, float, float]:
        """The first noise level (its default in standard deviations), the switch and the last."""
        least = self.default_range[1]
        switch = max(least, min(prior._switch_level for prior in problem.priors))
        if self.correlated and problem.correlated:
            switch = least
        levels = problem.noise_levels(
            (first, self.sigma_switch, self.sigma_min), (default, switch, least)
        )
        return levels[0], levels[1], levels[2]

    def _descend(
        self, problem: Problem, clean: Tensor, upper: list[float], lower: list[float]
    ) -> Iterator[State]:
        x = clean + upper[0] * problem.noise.normal(clean)
        for step, (sigma, after) in enumerate(itertools.pairwise(upper), start=1):
            decay = self.temperature_decay * step / (len(upper) - 1)
            clean = sample_clean(
                problem,
                x,
                sigma,
                self.temperature * (1 - decay),
                correlated=self.correlated,
                variance_shrinkage=self.variance_shrinkage,
            )
            x = clean + after * problem.noise.normal(x)
            yield State(x, after, step, self.steps, level_done=True)
        move = LangevinSteps(problem, self.rate, self.weight, self.temperature)
        for step, sigma in enumerate(lower, start=len(upper)):
            x = move(x, sigma)
            yield State(x, sigma, step, self.steps, level_done=True)
