"""Runs a plan on a batch of observations."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from basis import metrics
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers.problem import Noise, Problem, item_seeds
from basis.samplers.sampler import check_finite, denoise_and_project, project_into_range
from basis.search.plan import Plan, Round
from basis.search.plausibility import Plausibility, judge
from basis.search.ranking import align, by_prior, exchangeable, needs_order
from basis.tensors import per_item

OnStep = Callable[[int, int, float, Tensor], None]
"""Called with the steps done, the steps in all, the noise level and the state of the chains,
(batch, chains, k, channels, *size)."""

_FAR = 10.0  # a chain this many value ranges away has diverged


@contextmanager
def evaluation_mode(priors: Sequence[Prior]) -> Iterator[None]:
    """Puts priors in evaluation mode for the length of the block."""
    modules = {module: module.training for prior in priors for module in prior.modules()}
    for prior in priors:
        prior.eval()
    try:
        yield
    finally:
        for module, training in modules.items():
            module.training = training


class StepCounter:
    """Adds up the steps of batches that run in parallel."""

    def __init__(self, batches: int, callback: Callable[[Progress], None] | None) -> None:
        self.batches, self.callback = batches, callback
        self.done: dict[int, int] = {}
        self.lock = threading.Lock()

    def __call__(self, batch: int, done: int, total: int, sigma: float, state: Tensor) -> None:
        if self.callback is not None:
            with self.lock:
                self.done[batch] = done
                done = sum(self.done.values())
                self.callback(Progress(done, self.batches * total, sigma, state))


class ItemSeeds:
    """The seeds of the items of an observation, by label."""

    def __init__(
        self, observation: Tensor, seed: int, occurrences: Sequence[int] | None = None
    ) -> None:
        self.observation, self.seed, self.occurrences = observation, seed, occurrences
        self.known: dict[tuple[str, int], list[list[int]]] = {}
        self.lock = threading.Lock()

    def __call__(self, label: str, chains: int, items: slice) -> list[list[int]]:
        """The seeds of these items, one per chain."""
        key = (label, chains)
        with self.lock:
            if key not in self.known:
                self.known[key] = item_seeds(
                    self.observation, chains, self.seed, label, self.occurrences
                )
        return self.known[key][items]


@dataclass(frozen=True)
class Found:
    """What a search found for a batch.

    Attributes:
        best: (batch, k, channels, *size).
        samples: The posterior samples if the plan has some, else the chains of the first round,
            (batch, chains, k, channels, *size); exchangeable sources in the order of the best.
        energies: Those of the first round, (batch, chains).
        evaluations: (batch,).
        plausibility: Of the best; None if a prior has no typical energies.
        trajectory: States by noise level, (batch, chains, k, channels, *size).
    """

    best: Tensor
    samples: Tensor
    energies: Tensor
    evaluations: Tensor
    plausibility: Plausibility | None = None
    trajectory: dict[float, Tensor] = field(default_factory=dict)


class Search:
    """Runs a plan.

    Args:
        plan: What to do.
        priors: One per source.
        mixing: How the sources make the observation.
        observation: (batch, *observed shape).
        seeds: The seeds of every item and chain, given a label and a number of chains.
        on_step: Called after every step.
    """

    def __init__(
        self,
        plan: Plan,
        priors: Sequence[Prior],
        mixing: Mixing,
        observation: Tensor,
        seeds: Callable[[str, int], list[list[int]]],
        on_step: OnStep,
    ) -> None:
        self.plan, self.seeds, self.on_step = plan, seeds, on_step
        self.rank_seeds = [row[0] for row in seeds("rank", 1)]
        self.problem = Problem(priors, mixing, observation, Noise(self.rank_seeds))
        self.allowed = exchangeable(priors, mixing)
        self.states: dict[float, Tensor] = {}
        self.steps_done = 0

    def run(self) -> Found:
        """Runs all rounds, then the refinement."""
        plan, problem = self.plan, self.problem
        active = torch.arange(len(problem.observation))
        best, samples, energies = self._round(plan.rounds[0], "round 0", active)
        if len(plan.rounds) > 1:
            disagree = self._distance(samples, best) > plan.agreement * problem.std
        if plan.order:
            best = by_prior(problem, best, self.rank_seeds)
        for number, r in enumerate(plan.rounds[1:], start=1):
            active = active[disagree]
            if not len(active):
                break
            winner, ends, _ = self._round(r, f"round {number}", active, best[active])
            best[active] = winner
            disagree = self._distance(ends, winner) > plan.agreement * problem.std
        if plan.refine:
            best = self._refine(plan.refine, best)
        if plan.posterior:
            samples = self._chains(plan.posterior, "draws", torch.arange(len(best)), None)
            if needs_order(problem.priors, problem.mixing):
                samples = self._ordered(samples)
        finished = (plan.refine or plan.rounds[-1]).finish
        plausibility = judge(problem, best, finished=finished) if plan.judge else None
        samples = self._aligned(samples, best)
        return Found(best, samples, energies, problem.evaluations, plausibility, self._trajectory())

    def _refine(self, r: Round, best: Tensor) -> Tensor:
        """The mean of chains from the best; the best itself if one of them diverged.

        A prior may return ever larger values for signals without noise.
        """
        ends = self._chains(r, "polish", torch.arange(len(best)), best, checked=False)
        mean = project_into_range(self.problem, self._aligned(ends.nan_to_num(), best).mean(dim=1))
        converged = torch.isfinite(ends).flatten(1).all(dim=1)
        return torch.where(per_item(converged, best).bool(), mean, best)

    def _round(
        self, r: Round, label: str, active: Tensor, best: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The winners, all candidates and their energies for the active items."""
        candidates = self._chains(r, label, active, best)
        if best is not None:
            candidates = torch.cat([best[:, None], candidates], dim=1)
        seeds = [self.rank_seeds[i] for i in active.tolist()]
        problem = self.problem.chains(active, 1, seeds)
        energy = self.plan.ranking(problem, candidates, seeds)
        if self.plan.ranking.by == "mean":
            return self._mean(problem, candidates, r.finish), candidates, energy
        best = candidates[torch.arange(len(candidates)), energy.argmin(dim=1).cpu()]
        return best, candidates, energy

    def _mean(self, problem: Problem, candidates: Tensor, finished: bool) -> Tensor:
        """The mean of candidates, (active, k, ...), with exchangeable sources in one order.

        If sources are put in the order that their priors prefer, this happens to the mean: chains
        that settled in different orders must be aligned before they are averaged.
        """
        allowed = self.problem.mixing.interchangeable if self.plan.order else self.allowed
        mean = candidates[:, 0]
        for _ in range(3):  # the order that fits the mean instead of the first candidate
            mean = self._aligned(candidates, mean, allowed).mean(dim=1)
        return project_into_range(problem, mean) if finished else mean

    def _chains(
        self, r: Round, label: str, active: Tensor, best: Tensor | None, *, checked: bool = True
    ) -> Tensor:
        """The ends of the chains of one round for the active items, (active, chains, k, ...)."""
        every = self.seeds(label, r.chains)
        problem = self.problem.chains(active, r.chains, [s for i in active for s in every[i]])
        if best is None or r.start is None:
            states = r.sampler.run(problem)
        else:
            around = best.repeat_interleave(r.chains, dim=0)
            states = r.sampler.resume(problem, around, problem.sigma(r.start))
        for state in states:
            x = state.x.unflatten(0, (len(active), r.chains))
            if self.plan.trajectory and state.level_done:
                self.states[state.sigma] = x
            self.on_step(self.steps_done + state.step, self.plan.steps, state.sigma, x)
        self.steps_done += r.sampler.total_steps
        if checked:
            check_finite(state.x)
        if r.finish:
            x = denoise_and_project(
                problem, state.x, state.sigma, checked=checked, temperature=float(r.sampled)
            )
        else:
            x = problem.clamp(state.x)
        if not checked:
            away = (state.x - problem.center()).abs().flatten(1).amax(dim=1)
            x[~(away < _FAR * problem.value_width)] = torch.nan
        return x.unflatten(0, (len(active), r.chains))

    def _ordered(self, samples: Tensor) -> Tensor:
        """Samples with sources in the order that their priors prefer, (batch, chains, k, ...).

        An exchange keeps the observation, so it is a valid step of the posterior; chains that
        settled in the wrong order do not find it by themselves.
        """
        batch, chains = samples.shape[:2]
        seeds = [s for s in self.rank_seeds for _ in range(chains)]
        problem = self.problem.chains(torch.arange(batch), chains, seeds)
        return by_prior(problem, samples.flatten(0, 1), seeds, noises=2).view(samples.shape)

    def _distance(self, candidates: Tensor, best: Tensor) -> Tensor:
        """The largest root-mean-square distance of a candidate from the best: (batch,)."""
        apart = self._aligned(candidates, best) - best[:, None]
        return torch.stack([metrics.rms(x) for x in apart.unbind(1)]).amax(dim=0).cpu()

    def _aligned(self, x: Tensor, reference: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Candidates, (batch, chains, k, ...), each in the order that is closest to a reference."""
        allowed = self.allowed if allowed is None else allowed
        return torch.stack([align(one, reference, allowed) for one in x.unbind(1)], dim=1)

    def _trajectory(self) -> dict[float, Tensor]:
        wanted = self.plan.trajectory
        if isinstance(wanted, str):
            return self.states
        nearest = {min(self.states, key=lambda s: abs(math.log(s / want))) for want in wanted}
        return {sigma: self.states[sigma] for sigma in sorted(nearest, reverse=True)}
