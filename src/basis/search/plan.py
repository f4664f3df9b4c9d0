"""Plans: how many chains of which sampler, how the best is chosen and how it is refined.

Chains of the split-Gibbs sampler end in one of several modes of the posterior, most often the right
one. A search therefore runs several, ranks them, restarts from the best one at a lower noise level
(only for items whose chains disagree) and refines the winner, which is some dB closer to the truth
than a sample.

A run of a single sampler is a plan with one round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from basis.errors import BasisError
from basis.samplers.ascent import Ascent
from basis.samplers.gibbs import Gibbs
from basis.samplers.sampler import Sampler
from basis.search.plausibility import LEVELS
from basis.search.ranking import ORDER, Ranking
from basis.settings import DEFAULT_METHOD, ESTIMATES, METHODS, Estimate

_SEVERAL = 150  # evaluations per source that are enough for several chains and restarts
_CHAIN_STEPS = 40  # steps of one of several chains
_MOST = 10**7  # evaluations per item; more take hours
_PER_CHAIN = 20  # evaluations per chain of a mean: 2 chains of 44, 4 of 72, 7 of 141
_MEAN_REFINEMENT = 8  # refinement steps of a mean
_SINGLE_POWER, _SINGLE_DECAY = 2.0, 0.5  # schedule and temperature of a single chain
_SAMPLE_SHRINKAGE, _SAMPLE_POWER = 0.7, 1.5  # settings of a chain that returns a sample
_COOLING_STEPS = 45.0  # how much too wide the last samples are, times the number of steps
_RESTARTS = (2.2, 1.8, 1.5)  # noise levels of the restarts, in standard deviations of the prior


@dataclass(frozen=True)
class Round:
    """Several chains of a sampler for each item.

    Attributes:
        chains: Chains per item.
        sampler: What each chain runs.
        start: Noise level, in standard deviations of the prior, at which chains restart from the
            best answer so far; None starts from noise alone.
        finish: Whether a chain ends with a denoising step and a projection onto the observation.
        sampled: Whether the denoising step draws from the distribution of clean sources, as a
            posterior sample requires, instead of taking its mean, which is closer to the truth.
    """

    chains: int
    sampler: Sampler
    start: float | None = None
    finish: bool = True
    sampled: bool = False

    def __post_init__(self) -> None:
        if self.chains < 1:
            raise BasisError(f"chains must be at least 1, not {self.chains}")
        if not isinstance(self.sampler, Sampler):
            raise BasisError(f"sampler must be a Sampler, not {self.sampler!r}")

    @property
    def evaluations(self) -> int:
        """Network evaluations per source: one per step, and one for the final denoising."""
        return self.chains * (self.sampler.evaluations + self.finish)

    def settings(self) -> dict[str, Any]:
        """The round as it is recorded."""
        return {
            "chains": self.chains,
            "sampler": self.sampler.settings(),
            "start": self.start,
            "finish": self.finish,
            "sampled": self.sampled,
        }


@dataclass(frozen=True)
class Plan:
    """What a separation does; `separate(method=Plan(...))` runs it.

    Attributes:
        rounds: The first round starts from noise, the others restart from the best answer so far.
        refine: A last round whose mean is the answer; None keeps the best chain as it is.
        ranking: How the best chain is chosen.
        agreement: Items whose chains are all within this root-mean-square distance of the best one,
            in standard deviations of the prior, skip the remaining rounds.
        order: Whether sources that the mixing does not distinguish but that have different priors
            are put in the order that the priors prefer.
        posterior: Chains that sample the posterior in addition to the search, as `Result.samples`.
        judge: Whether to compute the plausibility: three network evaluations per source.
        trajectory: Noise levels of the first round whose last states to keep, or "all".
    """

    rounds: tuple[Round, ...]
    refine: Round | None = None
    ranking: Ranking = field(default_factory=Ranking)
    agreement: float = 1 / 6
    order: bool = False
    posterior: Round | None = None
    judge: bool = True
    trajectory: Sequence[float] | Literal["all"] = ()

    def __post_init__(self) -> None:
        if not self.rounds:
            raise BasisError("a plan needs at least one round")
        if self.rounds[0].start is not None:
            raise BasisError("the first round of a plan starts from noise: leave its start out")
        later = [*self.rounds[1:], *([self.refine] if self.refine else [])]
        if any(r.start is None for r in later):
            raise BasisError("rounds after the first and the refinement need a start")
        if isinstance(self.trajectory, str):
            if self.trajectory != "all":
                raise BasisError(
                    f"trajectory must be noise levels or 'all', not {self.trajectory!r}"
                )
        elif any(not sigma > 0 for sigma in self.trajectory):
            raise BasisError(
                f"noise levels of trajectory must be positive, not {list(self.trajectory)}"
            )

    def evaluations(self, sources: int = 2) -> int:
        """Network evaluations per source if no item stops early."""
        total = ORDER.evaluations(sources) if self.order else 0
        for number, r in enumerate(self.rounds):
            total += r.evaluations + self.ranking.evaluations(r.chains + (number > 0))
        total += sum(r.evaluations for r in self._last)
        return total + self.judge * len(LEVELS)

    @property
    def steps(self) -> int:
        """Sampling steps if no item stops early."""
        return sum(r.sampler.total_steps for r in (*self.rounds, *self._last))

    @property
    def widest(self) -> int:
        """The largest number of chains of any round."""
        return max(r.chains for r in (*self.rounds, *self._last))

    @property
    def _last(self) -> list[Round]:
        return [r for r in (self.refine, self.posterior) if r]

    def settings(self) -> dict[str, Any]:
        """The plan as it is recorded."""
        first = self.rounds[0]
        if len(self.rounds) == 1 and not (self._last or self.order):
            return {
                **first.sampler.settings(),
                "samples": first.chains,
                "ranking": self.ranking.by,
                "finish": first.finish,
                "sampled": first.sampled,
            }
        return {
            "name": "search",
            "rounds": [r.settings() for r in self.rounds],
            "refine": self.refine.settings() if self.refine else None,
            "ranking": vars(self.ranking),
            "agreement": self.agreement,
            "order": self.order,
            "posterior": self.posterior.settings() if self.posterior else None,
        }


def single_round(sampler: Sampler, samples: int | None, estimate: Estimate) -> Plan:
    """The plan that runs a single sampler."""
    by: dict[Estimate, Any] = {"mode": "energy", "mean": "mean", "sample": "first"}
    first = Round(samples or 1, sampler, sampled=samples is not None)
    return Plan((first,), ranking=Ranking(by[estimate]))


def plan_for(
    method: str | int | None = None,
    sources: int = 2,
    *,
    ordered: bool = False,
    cost: int | None = None,
    estimate: Estimate = "mode",
) -> Plan:
    """The recommended plan for a named method or for a number of evaluations per item.

    Named methods are numbers of network evaluations per source; None is "balanced".

    Args:
        method: A name from `basis.settings.METHODS`, or a number of evaluations.
        sources: The number of sources.
        ordered: Whether sources are to be put in the order that their priors prefer, if the
            evaluations suffice for that.
        cost: Evaluations that one score of every source counts for, if not one each: the score of a
            likelihood counts three.
        estimate: What the answer is. A "mean" spends all evaluations on chains that are averaged, a
            "sample" on a single chain.
    """
    cost = sources if cost is None else cost
    method = DEFAULT_METHOD if method is None else method
    if estimate not in ESTIMATES:
        raise BasisError(f"estimate must be one of {', '.join(ESTIMATES)}, not {estimate!r}")
    if isinstance(method, str) and method in METHODS:
        budget = METHODS[method] * sources
    elif isinstance(method, int) and not isinstance(method, bool):
        budget = method
    else:
        raise BasisError(
            f"method must be {', '.join(METHODS)}, a number of evaluations, a sampler or a Plan, "
            f"not {method!r}"
        )
    if budget > _MOST:
        raise BasisError(f"method must be at most {_MOST:,} evaluations, not {budget:,}")
    evaluations = budget // cost
    if evaluations < 4:
        raise BasisError(
            f"method must be at least {4 * cost} evaluations for {sources} sources, not {budget}"
        )
    judge = evaluations >= 4 + len(LEVELS)
    evaluations -= judge * len(LEVELS)
    left = evaluations - ORDER.evaluations(sources)
    make = {"mode": _mode_plan, "mean": _mean_plan, "sample": _sample_plan}[estimate]
    if ordered and left >= _SEVERAL:
        return replace(make(left), order=True, judge=judge)
    return replace(make(evaluations), judge=judge)


def _mode_plan(evaluations: int) -> Plan:
    """The best search found for this many network evaluations per source."""
    if evaluations < _SEVERAL:
        chains = 1 if evaluations < 80 else 2
        ranking = Ranking(levels=(2 / 3,))
        refine = _refinement(max(1, min(16, evaluations // 4)))
        left = evaluations - refine.evaluations - ranking.evaluations(chains)
        sampler = (_chain if chains > 1 else _single_chain)(left // chains - 1)
        return Plan((Round(chains, sampler),), refine, ranking)
    ranking, refine = Ranking(), _refinement(32 if evaluations < 600 else 48)
    restart = Round(8, _chain(12), _RESTARTS[0])
    left = evaluations - refine.evaluations
    chain = _CHAIN_STEPS + 1 + ranking.evaluations(2) // 2
    again = restart.evaluations + ranking.evaluations(restart.chains + 1)
    restarts = max(0, min(len(_RESTARTS), (left - 8 * chain) // again))
    left -= restarts * again
    chains = max(2, left // chain)
    steps = left // chains - 1 - ranking.evaluations(2) // 2
    others = tuple(replace(restart, start=start) for start in _RESTARTS[:restarts])
    return Plan((Round(chains, _chain(steps)), *others), refine, ranking)


def _mean_plan(evaluations: int) -> Plan:
    """Chains whose mean is the answer; longer ones help more than many.

    The chains stop at the noise level where modes are decided. If the values of a source are
    correlated, their mean is as far from the posterior mean as a sample is. A short refinement
    corrects that, and is too short to choose among the modes that the mean lies between.
    """
    refine = _refinement(max(1, min(_MEAN_REFINEMENT, evaluations // 8)))
    left = evaluations - refine.evaluations
    chains = max(1, round(math.sqrt(left / _PER_CHAIN)))
    return Plan((Round(chains, _chain(left // chains - 1)),), refine, Ranking("mean"))


def _sample_plan(evaluations: int) -> Plan:
    """One chain whose sources have the energies of true signals.

    With few steps the sampler leaves too much detail, and leaves it in one source only. A
    temperature that decays, more with fewer steps, and variances that are shrunk towards each other
    correct both. Which source gets what is decided in the first steps, which run at full
    temperature.
    """
    steps = max(1, evaluations - 1)
    decay = min(1.0, _COOLING_STEPS / steps)
    sampler = Gibbs(
        steps=steps,
        schedule_power=_SAMPLE_POWER,
        temperature_decay=decay,
        variance_shrinkage=_SAMPLE_SHRINKAGE,
    )
    return Plan((Round(1, sampler),), ranking=Ranking("first"))


def _chain(steps: int) -> Gibbs:
    """A chain that stops where modes are decided; the refinement does the rest."""
    return Gibbs(steps=max(1, steps), gibbs_fraction=1.0, correlated=False)


def _single_chain(steps: int) -> Gibbs:
    """A chain that has to find the right mode on its own.

    Which source gets what is decided at the largest noise levels, where most steps are spent.
    Towards the end samples approach means, because the refinement needs a mode and not a sample.
    """
    return replace(_chain(steps), schedule_power=_SINGLE_POWER, temperature_decay=_SINGLE_DECAY)


def _refinement(steps: int) -> Round:
    """Noise-free ascent from the best answer to the mode around it.

    For a Gaussian posterior that is its mean. On digits 16 steps of one chain come closer to the
    truth than the mean of eight chains of five steps. It starts where modes are decided: from a
    higher noise level it can leave the right mode of three sources, and with a small weight of the
    observation its last steps are spent on matching it.
    """
    return Round(1, Ascent(steps=steps, momentum=0.7, weight=64.0), 7 / 6)
