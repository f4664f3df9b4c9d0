"""The search behind `effort`: several chains, a choice, second looks where it is needed, and a last average.

Chains of the split-Gibbs sampler end in one of several explanations of a mixture, most often the right one. So: draw
some, rank them, noise the best one a little and draw again around it (only for mixtures whose chains disagree), and
end with the mean of a few short chains around the winner, which is some dB nearer to the truth than any one draw.

Where sources have priors of their own and the mixing treats them alike, chains that settled on the wrong order seldom find
the way back. What tells the order (a church, an animal, a small digit) shows at high noise, so that the best is put in the order
that the priors prefer there before it is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis.mixings import Mixing
from basis.priors import Prior
from basis.samplers import Gibbs, Noise, Problem, check_finite, finish, settle
from basis.separation._ranking import Choice, Ranking

EFFORTS = {"fast": 100, "balanced": 300, "best": 1000}
"""Named efforts, in network calls per source."""
DEFAULT_EFFORT = "balanced"

_MANY = 150  # network calls per source that are enough for several chains and second looks
_STEPS = 40  # of one of several chains
_CEILINGS = (0.6, 0.45, 0.35)  # noise levels from which to look again
_ORDER = Ranking(sigmas=(0.8, 1.6), draws=8)  # by which sources are put in order


@dataclass(frozen=True)
class Round:
    """Chains per mixture, steps of each, and the noise level they start from (None: from nothing)."""

    chains: int
    steps: int
    ceiling: float | None = None

    @property
    def calls(self) -> int:
        """Network calls per source: every step, and one to take off the last noise."""
        return self.chains * (self.steps + 1)


@dataclass(frozen=True)
class Plan:
    """What a search does.

    Attributes:
        rounds: The first draws from nothing, the others around the best so far.
        polish: A last round whose mean is the answer; None leaves the best sample as it is.
        ranking: How the best is chosen.
        certain: Mixtures whose chains all lie within this root-mean-square distance of the best take no further
            rounds.
        orders: The number of sources where they are to be put in the order that their priors prefer, else 0.
    """

    rounds: tuple[Round, ...]
    polish: Round | None = None
    ranking: Ranking = field(default_factory=Ranking)
    certain: float = 0.05
    orders: int = 0

    def calls(self) -> int:
        """Network calls per source when no mixture stops early: evaluations divided by the number of sources."""
        total = _ORDER.calls(self.orders)
        for number, r in enumerate(self.rounds):
            total += r.calls + self.ranking.calls(r.chains + (number > 0))
        return total + (self.polish.calls if self.polish else 0)

    @property
    def widest(self) -> int:
        """The most chains that any round has."""
        return max(r.chains for r in (*self.rounds, *([self.polish] if self.polish else [])))

    def with_choice(self, samples: int | None, choose: Choice | None) -> Plan:
        """The same plan with so many chains in its first round, or chosen in another way."""
        first, *others = self.rounds
        first = replace(first, chains=samples or first.chains)
        ranking = replace(self.ranking, by=choose or self.ranking.by)
        return replace(self, rounds=(first, *others), ranking=ranking)

    def settings(self) -> dict[str, Any]:
        """What a run's record says of its search."""
        return {"name": "search", "sampler": Gibbs.name, **asdict(self)}


def alike(mixing: Mixing) -> Tensor:
    """Which sources a mixing does not tell from which: (sources, sources)."""
    columns = mixing.matrix.unflatten(1, (mixing.sources, mixing.channels)).movedim(1, 0)
    return (columns[:, None] == columns).flatten(2).all(dim=2)


def have_an_order(priors: Sequence[Prior], mixing: Mixing) -> bool:
    """Whether sources that the mixing treats alike have different priors."""
    same = torch.tensor([[a is b for b in priors] for a in priors])
    return bool((alike(mixing) & ~same).any())


def plan_for(effort: str | int | None, sources: int, *, ordered: bool = False) -> Plan:
    """The recommended plan for a named effort or for a number of evaluations per mixture; balanced for None.

    Named efforts are so many network calls per source, that is twice as many evaluations for two sources.

    Args:
        ordered: Whether sources are to be put in the order that their priors prefer, where the effort is enough for that.
    """
    effort = DEFAULT_EFFORT if effort is None else effort
    if isinstance(effort, str):
        if effort not in EFFORTS:
            raise BasisError(
                f"effort must be {', '.join(EFFORTS)} or a number of evaluations, not {effort!r}"
            )
        calls = EFFORTS[effort]
    else:
        calls = int(effort) // sources
    if calls < 4:
        raise BasisError(
            f"an effort of {effort} evaluations is too small: give at least {4 * sources} "
            f"for {sources} sources"
        )
    left = calls - _ORDER.calls(sources)
    return replace(_plan(left), orders=sources) if ordered and left >= _MANY else _plan(calls)


def _plan(calls: int) -> Plan:
    """The best plan found for so many network calls per source."""
    if calls < 40:
        return Plan((Round(1, calls - 1),))
    if calls < _MANY:
        quick, ranking = Round(4, 3, 0.2), Ranking(sigmas=(0.2,))
        steps = (calls - quick.calls - ranking.calls(2)) // 2 - 1
        return Plan((Round(2, steps),), quick, ranking)
    polish, ranking, look = Round(8, 5, 0.3), Ranking(), Round(8, 12, 0.6)
    left = calls - polish.calls
    chain = _STEPS + 1 + ranking.calls(2) // 2
    again = look.calls + ranking.calls(look.chains + 1)
    looks = max(0, min(len(_CEILINGS), (left - 8 * chain) // again))
    left -= looks * again
    chains = max(2, left // chain)
    steps = left // chains - 1 - ranking.calls(2) // 2
    others = tuple(Round(look.chains, look.steps, c) for c in _CEILINGS[:looks])
    return Plan((Round(chains, steps), *others), polish, ranking)


Seeds = Callable[[str, int], list[list[int]]]
"""Given a label and a number of chains, the seeds of every item and chain."""

Report = Callable[[int, int, float], None]
"""Told how many of how many steps are done, and the noise level."""


@dataclass(frozen=True)
class Found:
    """What a search found for a chunk of mixtures.

    Attributes:
        best: (batch, k, channels, height, width).
        samples: The first round's, (batch, chains, k, channels, height, width).
        energies: Theirs, (batch, chains).
        spent: Evaluations, (batch,).
        kept: States on the way by noise level, (batch, chains, k, ...).
    """

    best: Tensor
    samples: Tensor
    energies: Tensor
    spent: Tensor
    kept: dict[float, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """A plan at work on one chunk of mixtures.

    Attributes:
        seeds: Where random numbers come from.
        report: Told after every step.
    """

    plan: Plan
    priors: Sequence[Prior]
    mixing: Mixing
    observation: Tensor
    seeds: Seeds
    report: Report

    def run(self) -> Found:
        """All rounds, then the polish."""
        plan = self.plan
        count = len(self.observation)
        judge = self.seeds("rank", 1)
        spent = torch.zeros(count, dtype=torch.long)
        active = torch.arange(count)
        best, samples, energies = self._round(plan.rounds[0], "round 0", active, judge, spent)
        doubt = self._distance(samples, best) > plan.certain
        if plan.orders:
            best = self._in_order(best, judge, spent)
        for number, r in enumerate(plan.rounds[1:], start=1):
            active = active[doubt]
            if not len(active):
                break
            winner, drawn, _ = self._round(r, f"round {number}", active, judge, spent, best)
            best[active] = winner
            doubt = self._distance(drawn, winner) > plan.certain
        if plan.polish:
            every = torch.arange(count)
            problem, drawn = self._draw(plan.polish, "polish", every, best)
            spent += problem.evaluations * plan.polish.chains
            aligned = [self._align(x, best) for x in drawn.unbind(1)]
            best = settle(self.mixing, torch.stack(aligned).mean(dim=0), self.observation)
        return Found(best, samples, energies, spent)

    def _round(
        self,
        r: Round,
        label: str,
        active: Tensor,
        judge: list[list[int]],
        spent: Tensor,
        best: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The winners, all candidates and their energies for the active items; adds to what they have spent."""
        problem, drawn = self._draw(r, label, active, best)
        spent[active] += problem.evaluations * r.chains
        if best is not None:
            drawn = torch.cat([best[active][:, None], drawn], dim=1)
        problem.evaluations = 0
        energy = self.plan.ranking(problem, drawn, [judge[i][0] for i in active.tolist()])
        # All candidates are folded into the batch, so that one count stands for each of them.
        spent[active] += problem.evaluations * drawn.shape[1]
        return drawn[torch.arange(len(drawn)), energy.argmin(dim=1).cpu()], drawn, energy

    def _in_order(self, best: Tensor, judge: list[list[int]], spent: Tensor) -> Tensor:
        """The same sources, those that the mixing treats alike in the order that their priors prefer."""
        k = self.plan.orders
        seeds = [row[0] for row in judge]
        problem = Problem(self.priors, self.mixing, self.observation, Noise(seeds))
        # Turned by 0 to k - 1 places, every source comes before every prior once.
        turned = torch.stack([best.roll(-turn, dims=1) for turn in range(k)], dim=1)
        energy = _ORDER.energy_of_each(problem, turned, seeds)
        spent += problem.evaluations * k
        costs = energy.new_zeros(len(best), k, k)
        for turn in range(k):
            for place in range(k):
                costs[:, (place + turn) % k, place] = energy[:, turn, place]
        costs = costs.masked_fill(~alike(self.mixing).to(costs.device), 1e12)
        order = metrics.match(-costs)
        return torch.stack([x[o] for x, o in zip(best, order, strict=True)])

    def _draw(
        self, r: Round, label: str, active: Tensor, best: Tensor | None
    ) -> tuple[Problem, Tensor]:
        """Finished samples of one round for the active items, (active, chains, k, ...)."""
        every = self.seeds(label, r.chains)
        seeds = [s for i in active.tolist() for s in every[i]]
        m = self.observation[active].repeat_interleave(r.chains, dim=0)
        problem = Problem(self.priors, self.mixing, m, Noise(seeds))
        sampler = Gibbs(steps=r.steps)
        if best is None:
            states = sampler.run(problem)
        else:
            around = best[active].repeat_interleave(r.chains, dim=0)
            states = sampler.walk(problem, around, r.ceiling)
        before, total = self._steps(label)
        for state in states:
            self.report(before + state.step, total, state.sigma)
        check_finite(state.x)
        x = finish(problem, state.x, state.sigma)
        return problem, x.unflatten(0, (len(active), r.chains))

    def _steps(self, label: str) -> tuple[int, int]:
        """Steps planned before the round of this label, and in all."""
        rounds = [(f"round {i}", r.steps) for i, r in enumerate(self.plan.rounds)]
        rounds += [("polish", self.plan.polish.steps)] if self.plan.polish else []
        names = [name for name, _ in rounds]
        before = sum(steps for _, steps in rounds[: names.index(label)])
        return before, sum(steps for _, steps in rounds)

    def _distance(self, drawn: Tensor, best: Tensor) -> Tensor:
        """The largest root-mean-square distance of any candidate from the best: (batch,)."""
        far = [metrics.rms(self._align(x, best) - best) for x in drawn.unbind(1)]
        return torch.stack(far).amax(dim=0).cpu()

    def _align(self, x: Tensor, reference: Tensor) -> Tensor:
        """Puts sources that one prior made in the reference's order; sources of several priors have their own."""
        one = all(prior is self.priors[0] for prior in self.priors)
        return metrics.reorder(x, reference) if one else x
