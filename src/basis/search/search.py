"""What the chunks of one separation share: seeds, a count of steps, priors ready to answer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from basis import metrics
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers.noise import Noise, item_seeds
from basis.samplers.problem import Problem
from basis.samplers.sampler import check_finite
from basis.samplers.steps import denoise_and_project, project_into_range
from basis.search.plan import Plan, Round
from basis.search.plausibility import Verdict, judge
from basis.search.ranking import align, by_prior, exchangeable, needs_order
from basis.tensors import per_item


@contextmanager
def evaluating(priors: Sequence[Prior]) -> Iterator[None]:
    """Priors in evaluation mode for the length of the block, then as they were before."""
    modules = {module: module.training for prior in priors for module in prior.modules()}
    for prior in priors:
        prior.eval()
    try:
        yield
    finally:
        for module, training in modules.items():
            module.training = training


class StepCounter:
    """Adds up the steps of chunks that run side by side."""

    def __init__(self, chunks: int, callback: Callable[[Progress], None] | None) -> None:
        self.chunks, self.callback = chunks, callback
        self.done: dict[int, int] = {}
        self.lock = threading.Lock()

    def __call__(self, chunk: int, done: int, total: int, sigma: float, state: Tensor) -> None:
        if self.callback is not None:
            with self.lock:
                self.done[chunk] = done
                done = sum(self.done.values())
                self.callback(Progress(done, self.chunks * total, sigma, state))


class ItemSeeds:
    """Seeds of the items of a batch, by label."""

    def __init__(
        self, observation: Tensor, seed: int, occurrences: Sequence[int] | None = None
    ) -> None:
        self.observation, self.seed, self.occurrences = observation, seed, occurrences
        self.known: dict[tuple[str, int], list[list[int]]] = {}
        self.lock = threading.Lock()

    def cut(self, part: slice) -> Seeds:
        """The same for a part of the batch."""

        def ask(label: str, chains: int) -> list[list[int]]:
            key = (label, chains)
            with self.lock:
                if key not in self.known:
                    self.known[key] = item_seeds(
                        self.observation, chains, self.seed, label, self.occurrences
                    )
            return self.known[key][part]

        return ask


Seeds = Callable[[str, int], list[list[int]]]
"""Given a label and a number of chains, the seeds of every item and chain."""

OnStep = Callable[[int, int, float, Tensor], None]
"""Called with how many of how many steps are done, the noise level, and the state of the chains,
(batch, chains, k, channels, *size)."""

Keep = Sequence[float] | Literal["all"]

_FAR = 10.0  # widths of the range of values beyond which a chain has run away


@dataclass(frozen=True)
class Found:
    """What a search found for a chunk of mixtures.

    Attributes:
        best: (batch, k, channels, *size).
        samples: The draws of the posterior where the plan has some, else the first round's,
            (batch, chains, k, channels, *size); exchangeable sources in the order of the best.
        energies: Those of the first round, (batch, chains).
        spent: Evaluations, (batch,).
        verdict: How plausible the best is, where that can be said.
        kept: States on the way by noise level, (batch, chains, k, ...).
    """

    best: Tensor
    samples: Tensor
    energies: Tensor
    spent: Tensor
    verdict: Verdict | None = None
    kept: dict[float, Tensor] = field(default_factory=dict)


class Search:
    """Runs a plan.

    Args:
        plan: What to do.
        priors, mixing, observation: What to explain.
        seeds: Where random numbers come from.
        on_step: Called after every step.
        keep: Noise levels of the first round whose last states to keep.
    """

    def __init__(
        self,
        plan: Plan,
        priors: Sequence[Prior],
        mixing: Mixing,
        observation: Tensor,
        seeds: Seeds,
        on_step: OnStep,
        keep: Keep = (),
    ) -> None:
        self.plan, self.seeds, self.on_step, self.keep = plan, seeds, on_step, keep
        self.judge = [row[0] for row in seeds("rank", 1)]
        self.problem = Problem(priors, mixing, observation, Noise(self.judge))
        self.allowed = exchangeable(priors, mixing)
        self.kept: dict[float, Tensor] = {}
        self.steps_done = 0

    def run(self) -> Found:
        """All rounds, then the polish."""
        plan, problem = self.plan, self.problem
        active = torch.arange(len(problem.observation))
        best, samples, energies = self._round(plan.rounds[0], "round 0", active)
        if len(plan.rounds) > 1:
            doubt = self._distance(samples, best) > plan.certain * problem.std
        if plan.order:
            best = by_prior(problem, best, self.judge)
        for number, r in enumerate(plan.rounds[1:], start=1):
            active = active[doubt]
            if not len(active):
                break
            winner, drawn, _ = self._round(r, f"round {number}", active, best[active])
            best[active] = winner
            doubt = self._distance(drawn, winner) > plan.certain * problem.std
        if plan.polish:
            best = self._polish(plan.polish, best)
        if plan.draws:
            samples = self._draw(plan.draws, "draws", torch.arange(len(best)), None)
            if needs_order(problem.priors, problem.mixing):
                samples = self._ordered(samples)
        finished = (plan.polish or plan.rounds[-1]).finish
        verdict = judge(problem, best, finished=finished) if plan.verdict else None
        samples = self._aligned(samples, best)
        return Found(best, samples, energies, problem.evaluations, verdict, self._kept())

    def _polish(self, r: Round, best: Tensor) -> Tensor:
        """The mean of chains about the best, and the best itself where one of them ran away.

        A prior may answer with ever larger values on signals that carry no noise.
        """
        drawn = self._draw(r, "polish", torch.arange(len(best)), best, checked=False)
        mean = project_into_range(self.problem, self._aligned(drawn.nan_to_num(), best).mean(dim=1))
        stayed = torch.isfinite(drawn).flatten(1).all(dim=1)
        return torch.where(per_item(stayed, best).bool(), mean, best)

    def _round(
        self, r: Round, label: str, active: Tensor, best: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The winners, all candidates and their energies for the active items."""
        drawn = self._draw(r, label, active, best)
        if best is not None:
            drawn = torch.cat([best[:, None], drawn], dim=1)
        judge = [self.judge[i] for i in active.tolist()]
        problem = self.problem.chains(active, 1, judge)
        energy = self.plan.ranking(problem, drawn, judge)
        if self.plan.ranking.by == "mean":
            return self._mean(problem, drawn, r.finish), drawn, energy
        return drawn[torch.arange(len(drawn)), energy.argmin(dim=1).cpu()], drawn, energy

    def _mean(self, problem: Problem, drawn: Tensor, settled: bool) -> Tensor:
        """The mean of candidates, (active, k, ...), exchangeable sources in one order.

        Where sources are put in the order that their priors prefer, that is done with the mean:
        chains that settled in different orders must not be averaged as they are.
        """
        allowed = self.problem.mixing.interchangeable if self.plan.order else self.allowed
        mean = drawn[:, 0]
        for _ in range(3):  # the order that suits a mean better than the first of them
            mean = self._aligned(drawn, mean, allowed).mean(dim=1)
        return project_into_range(problem, mean) if settled else mean

    def _draw(
        self, r: Round, label: str, active: Tensor, best: Tensor | None, *, checked: bool = True
    ) -> Tensor:
        """Samples of one round for the active items, (active, chains, k, ...)."""
        every = self.seeds(label, r.chains)
        problem = self.problem.chains(active, r.chains, [s for i in active for s in every[i]])
        if best is None or r.start is None:
            states = r.sampler.run(problem)
        else:
            around = best.repeat_interleave(r.chains, dim=0)
            states = r.sampler.resume(problem, around, problem.sigma(r.start))
        for state in states:
            chains = state.x.unflatten(0, (len(active), r.chains))
            if self.keep and state.level_done:
                self.kept[state.sigma] = chains
            self.on_step(self.steps_done + state.step, self.plan.steps, state.sigma, chains)
        self.steps_done += r.sampler.total_steps
        if checked:
            check_finite(state.x)
        if r.finish:
            x = denoise_and_project(problem, state.x, state.sigma, checked=checked)
        else:
            x = problem.clamp(state.x)
        if not checked:
            away = (state.x - problem.center()).abs().flatten(1).amax(dim=1)
            x[~(away < _FAR * problem.value_width)] = torch.nan
        return x.unflatten(0, (len(active), r.chains))

    def _ordered(self, samples: Tensor) -> Tensor:
        """Draws with sources in the order that their priors prefer, (batch, chains, k, ...).

        An exchange keeps the mixture, so that it is a step of the posterior like any other; chains
        that settled in the wrong order do not find it by themselves.
        """
        batch, chains = samples.shape[:2]
        items = torch.arange(batch)
        problem = self.problem.chains(items, chains, [s for s in self.judge for _ in range(chains)])
        seeds = [s for s in self.judge for _ in range(chains)]
        return by_prior(problem, samples.flatten(0, 1), seeds, draws=2).view(samples.shape)

    def _distance(self, drawn: Tensor, best: Tensor) -> Tensor:
        """The largest root-mean-square distance of any candidate from the best: (batch,)."""
        apart = self._aligned(drawn, best) - best[:, None]
        far = [metrics.rms(x) for x in apart.unbind(1)]
        return torch.stack(far).amax(dim=0).cpu()

    def _aligned(self, drawn: Tensor, reference: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Candidates, (batch, chains, k, ...), each in the order that is nearest to a reference."""
        allowed = self.allowed if allowed is None else allowed
        return torch.stack([align(x, reference, allowed) for x in drawn.unbind(1)], dim=1)

    def _kept(self) -> dict[float, Tensor]:
        if isinstance(self.keep, str):
            return self.kept
        nearest = {min(self.kept, key=lambda s: abs(math.log(s / want))) for want in self.keep}
        return {sigma: self.kept[sigma] for sigma in sorted(nearest, reverse=True)}
