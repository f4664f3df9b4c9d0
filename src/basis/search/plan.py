"""Plans: how many chains of which sampler, how the best is chosen, and how the answer is polished.

Chains of the split-Gibbs sampler end in one of several explanations of a mixture, most often the
right one. So: draw some, rank them, noise the best one a little and draw again around it (only for
mixtures whose chains disagree), and end with the mean of a few short chains around the winner,
which is some dB nearer to the truth than any one draw.

A run of one sampler is a plan of one round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from basis.errors import BasisError
from basis.samplers.ascent import Ascent
from basis.samplers.gibbs import Gibbs
from basis.samplers.sampler import Sampler
from basis.search.plausibility import LEVELS
from basis.search.ranking import ORDER, Ranking
from basis.settings import DEFAULT_EFFORT, EFFORTS, Choice, Effort

_MANY = 150  # network calls per source that are enough for several chains and second looks
_STEPS = 40  # of one of several chains
_MOST = 10**7  # evaluations that an effort may have: hours for one mixture
_PER_CHAIN = 20  # calls of each of as many chains for a mean: 2 of 44, 4 of 72, 7 of 141
_SHORT_CLIMB = 8  # steps of the polish of a mean
_BEND, _COOLING = 2.0, 0.5  # of a chain that is alone
_EVEN, _DRAWN_BEND = 0.7, 1.5  # of a chain that is to look like the prior's signals
_TOO_HOT = 45.0  # by how much its last draws are too wide, times its steps
_STARTS = (2.2, 1.8, 1.5)  # noise levels from which to look again, in spreads


@dataclass(frozen=True)
class Round:
    """Several chains of a sampler for each mixture.

    Attributes:
        chains: Chains per mixture.
        sampler: What each of them runs.
        start: Noise level in spreads of the prior that chains around the best answer so far begin
            from; None starts from nothing.
        finish: Whether a chain ends with one denoising and a projection onto what was observed.
    """

    chains: int
    sampler: Sampler
    start: float | None = None
    finish: bool = True

    def __post_init__(self) -> None:
        if self.chains < 1:
            raise BasisError(f"chains must be at least 1, not {self.chains}")
        if not isinstance(self.sampler, Sampler):
            raise BasisError(f"a round takes a sampler, not {self.sampler!r}")

    @property
    def calls(self) -> int:
        """Network calls per source: every step, and one to take off the last noise."""
        return self.chains * (self.sampler.evaluations + self.finish)

    def settings(self) -> dict[str, Any]:
        """What a run's record says of the round."""
        return {
            "chains": self.chains,
            "sampler": self.sampler.settings(),
            "start": self.start,
            "finish": self.finish,
        }


@dataclass(frozen=True)
class Plan:
    """What a separation does; `separate(effort=Plan(...))` runs it.

    Attributes:
        rounds: The first draws from nothing, the others around the best so far.
        polish: A last round whose mean is the answer; None leaves the best sample as it is.
        ranking: How the best is chosen.
        certain: Mixtures whose chains all lie within this root-mean-square distance of the best, in
            spreads of the prior, take no further rounds.
        order: Whether sources that the mixing treats alike but that have different priors are put
            in the order that the priors prefer.
        draws: Chains that sample the posterior beside the search; None leaves the first round's
            candidates as the samples.
        verdict: Whether to say how plausible the answer is, three network calls per source.
    """

    rounds: tuple[Round, ...]
    polish: Round | None = None
    ranking: Ranking = field(default_factory=Ranking)
    certain: float = 1 / 6
    order: bool = False
    draws: Round | None = None
    verdict: bool = True

    def __post_init__(self) -> None:
        if not self.rounds:
            raise BasisError("a plan needs at least one round")
        if self.rounds[0].start is not None:
            raise BasisError("the first round of a plan starts from nothing: leave its start out")
        later = [*self.rounds[1:], *([self.polish] if self.polish else [])]
        if any(r.start is None for r in later):
            raise BasisError("rounds after the first, and the polish, need a start")

    def calls(self, sources: int = 2) -> int:
        """Network calls per source when no mixture stops early."""
        total = ORDER.calls(sources) if self.order else 0
        for number, r in enumerate(self.rounds):
            total += r.calls + self.ranking.calls(r.chains + (number > 0))
        total += self.draws.calls if self.draws else 0
        return total + (self.polish.calls if self.polish else 0) + self.verdict * len(LEVELS)

    @property
    def steps(self) -> int:
        """Sampling steps when no mixture stops early."""
        last = [r for r in (self.polish, self.draws) if r]
        return sum(r.sampler.total_steps for r in (*self.rounds, *last))

    @property
    def widest(self) -> int:
        """The most chains that any round has."""
        others = [r for r in (self.polish, self.draws) if r]
        return max(r.chains for r in (*self.rounds, *others))

    def with_choice(self, samples: int | None, choose: Choice | None) -> Plan:
        """The same plan with so many draws of the posterior, or chosen in another way."""
        draws = self.draws if samples is None else Round(samples, Gibbs())
        ranking = replace(self.ranking, by=choose or self.ranking.by)
        return replace(self, draws=draws, ranking=ranking)

    def settings(self) -> dict[str, Any]:
        """What a run's record says of its plan."""
        first = self.rounds[0]
        alone = len(self.rounds) == 1 and not (self.polish or self.order or self.draws)
        if alone:
            return {
                **first.sampler.settings(),
                "samples": first.chains,
                "choose": self.ranking.by,
                "finish": first.finish,
            }
        return {
            "name": "search",
            "rounds": [r.settings() for r in self.rounds],
            "polish": self.polish.settings() if self.polish else None,
            "ranking": vars(self.ranking),
            "certain": self.certain,
            "order": self.order,
            "draws": self.draws.settings() if self.draws else None,
        }


def one_round(sampler: Sampler, samples: int, choose: Choice, finish: bool) -> Plan:
    """The plan that a single sampler is."""
    return Plan((Round(samples, sampler, finish=finish),), ranking=Ranking(choose))


def plan_for(
    effort: Effort | str | int | None = None,
    sources: int = 2,
    *,
    ordered: bool = False,
    cost: int | None = None,
    choose: Choice | None = None,
) -> Plan:
    """The recommended plan for a named effort or for a number of evaluations per mixture.

    Named efforts are so many network calls per source, that is twice as many evaluations for two
    sources; None is "balanced".

    Args:
        ordered: Whether sources are to be put in the order that their priors prefer, where the
            effort is enough for that.
        cost: Evaluations that one call for every source counts for, where they are not one each: a
            score of a likelihood counts three.
        choose: How samples become one answer, where not by energy. For the "mean" all evaluations
            go to draws, and for a "draw" to one.
    """
    cost = sources if cost is None else cost
    effort = DEFAULT_EFFORT if effort is None else effort
    if isinstance(effort, str):
        if effort not in EFFORTS:
            raise BasisError(
                f"effort must be {', '.join(EFFORTS)} or a number of evaluations, not {effort!r}"
            )
        budget = EFFORTS[effort] * sources
    elif isinstance(effort, bool) or not isinstance(effort, int):
        raise BasisError(
            f"effort must be {', '.join(EFFORTS)}, a whole number of evaluations or a Plan, "
            f"not {effort!r}"
        )
    else:
        budget = effort
    if budget > _MOST:
        raise BasisError(f"an effort of {budget} evaluations never ends: give at most {_MOST:,}")
    calls = budget // cost
    if calls < 4:
        raise BasisError(
            f"an effort of {budget} evaluations is too small: give at least {4 * cost} "
            f"for {sources} sources"
        )
    verdict = calls >= 4 + len(LEVELS)
    calls -= verdict * len(LEVELS)
    left = calls - ORDER.calls(sources)
    make = {"mean": _mean_plan, "draw": _one_draw}.get(choose or "", _plan)
    plan = replace(make(left), order=True) if ordered and left >= _MANY else make(calls)
    return replace(plan, verdict=verdict).with_choice(None, choose)


def _plan(calls: int) -> Plan:
    """The best plan found for so many network calls per source."""
    if calls < _MANY:
        chains = 1 if calls < 80 else 2
        ranking = Ranking(levels=(2 / 3,))
        climb = _climb(max(1, min(16, calls // 4)))
        left = calls - climb.calls - ranking.calls(chains)
        sampler = (_search if chains > 1 else _decisive)(left // chains - 1)
        return Plan((Round(chains, sampler),), climb, ranking)
    ranking, climb = Ranking(), _climb(32 if calls < 600 else 48)
    look = Round(8, _search(12), _STARTS[0])
    left = calls - climb.calls
    chain = _STEPS + 1 + ranking.calls(2) // 2
    again = look.calls + ranking.calls(look.chains + 1)
    looks = max(0, min(len(_STARTS), (left - 8 * chain) // again))
    left -= looks * again
    chains = max(2, left // chain)
    steps = left // chains - 1 - ranking.calls(2) // 2
    others = tuple(replace(look, start=start) for start in _STARTS[:looks])
    return Plan((Round(chains, _search(steps)), *others), climb, ranking)


def _mean_plan(calls: int) -> Plan:
    """Chains whose mean is the answer; longer ones do more for it than many.

    They stop where modes are decided, and for sources whose values move together a mean of such
    chains is as far from the posterior's as a draw is. A short climb from there mends that, and is
    too short to choose among the modes that the mean lies between.
    """
    climb = _climb(max(1, min(_SHORT_CLIMB, calls // 8)))
    left = calls - climb.calls
    chains = max(1, round(math.sqrt(left / _PER_CHAIN)))
    return Plan((Round(chains, _search(left // chains - 1)),), climb)


def _one_draw(calls: int) -> Plan:
    """One draw, by a chain whose sources have the energies of the truth.

    So few steps leave sources with more detail than the prior's signals have, and unevenly: one has
    everything, the other is smooth. Draws that cool down on the way, the more the fewer they are,
    and variances that are more alike put both right, of photos at 49 and at 98 steps. What belongs
    to which source is decided in the first steps, which are drawn as widely as the prior says.
    """
    steps = max(1, calls - 1)
    cooling = min(1.0, _TOO_HOT / steps)
    return Plan(
        (
            Round(
                1,
                Gibbs(
                    steps=steps,
                    schedule_power=_DRAWN_BEND,
                    temperature_decay=cooling,
                    variance_shrinkage=_EVEN,
                ),
            ),
        )
    )


def _search(steps: int) -> Gibbs:
    """Chains that stop where modes are decided: what is below is the polish's."""
    return Gibbs(steps=max(1, steps), gibbs_fraction=1.0, correlated=False)


def _decisive(steps: int) -> Gibbs:
    """The same for a chain that is alone, and has to find the right mode by itself.

    What belongs to which source is decided at the largest noise levels, where most of the steps go;
    towards the end draws come nearer to means, since the climb needs a mode and no sample of it.
    """
    return replace(_search(steps), schedule_power=_BEND, temperature_decay=_COOLING)


def _climb(steps: int) -> Round:
    """The polish: without noise from the best answer to the mode about it.

    For a Gaussian posterior that is its mean. On digits 16 steps of one chain come nearer to the
    truth than the mean of eight chains of five steps. It begins where modes are decided: from more
    noise a climb leaves the right mode of three sources for another, and with the mixture weighed
    little its last steps go into meeting it.
    """
    return Round(1, Ascent(steps=steps, momentum=0.7, weight=64.0), 7 / 6)
