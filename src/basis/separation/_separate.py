"""`separate`: a prior, a mixing and a sampler become sources."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis._version import __version__
from basis.mixings import Mixing
from basis.priors import Prior, with_likelihood
from basis.samplers import Sampler, item_seeds
from basis.separation._nouns import check_nouns, check_observation, make_sampler
from basis.separation._order import exchangeable, needs_order
from basis.separation._plan import Plan, one_round, plan_for
from basis.separation._result import Progress, Result
from basis.separation._search import Found, Keep, Search, Seeds
from basis.separation._words import Choice, Effort
from basis.separation._workers import default_workers, run_all


def separate(
    mixture: Tensor | np.ndarray,
    prior: Prior | Sequence[Prior],
    *,
    alphas: Sequence[float] | None = None,
    mixing: Mixing | None = None,
    effort: Effort | str | int | Plan | None = None,
    sampler: str | Sampler | None = None,
    samples: int | None = None,
    choose: Choice | None = None,
    seed: int = 0,
    finish: bool = True,
    keep: Sequence[float] | Literal["all"] = (),
    chunk: int = 128,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Result:
    """Finds the sources that were mixed, by search (an effort) or by drawing from their posterior.

    Args:
        mixture: What was observed, m, (batch, *observed), in the units of sum_i alpha_i x_i with
            sources in the priors' range. float32 or float64, a tensor or a numpy array; the state
            is kept in that precision.
        prior: One prior for all sources, or one per source.
        alphas: The weights of a plain mixture, one per source; (1, 1) by default.
        mixing: Any other mixing, instead of alphas.
        effort: "fast", "balanced" (the default where no sampler is given), "best", or a number of
            network evaluations per mixture: the search that was measured to be best for it. Or a
            `Plan` of your own.
        sampler: Instead of an effort: a name from `basis.samplers.SAMPLERS`, or a sampler.
        samples: Independent chains per mixture; 1 with a sampler, what the effort provides for
            otherwise.
        choose: Which sample becomes `sources`: the "first", or the best by denoising "energy", by
            "likelihood" (score priors answer by their probability flow, at many evaluations) or by
            the sum of "both". With a sampler "first" is the default, with an effort "energy".
        seed: The same seed gives an item the same separation in any batch and at any place in it.
        finish: Whether a sampler ends with one denoising and a projection onto what was observed.
        keep: Noise levels whose last state to keep (the nearest level is taken), or "all"; with a
            sampler.
        chunk: Chains advanced together; memory grows with this and not with the batch.
        workers: Chunks worked on at the same time, one core each; on a CPU as many as torch has
            threads.
        progress: Called after every step.
        options: Settings of a sampler given by name, for example `steps=50`.
    """
    priors, mixing = check_nouns(prior, alphas, mixing)
    if isinstance(mixture, np.ndarray):
        mixture = torch.from_numpy(mixture)
    m = check_observation(mixture, priors, mixing)
    for name, value in (("samples", samples), ("chunk", chunk), ("workers", workers)):
        if value is not None and value < 1:
            raise BasisError(f"{name} must be at least 1, not {value}")
    _check_keep(keep)
    plan = _plan(
        effort, sampler, samples, choose, finish, keep, options, priors=priors, mixing=mixing
    )
    if plan.ranking.by in ("likelihood", "both"):
        priors = with_likelihood(priors)

    started = time.perf_counter()
    workers = default_workers(m.device) if workers is None else workers
    each = max(1, min(chunk // plan.widest, math.ceil(len(m) / workers)))
    pieces = [slice(first, first + each) for first in range(0, len(m), each)]
    all_seeds = _ItemSeeds(m, seed)
    steps = _StepCounter(len(pieces), progress)

    def one(number: int, part: slice, check: Callable[[], None]) -> Found:
        def on_step(done: int, total: int, sigma: float) -> None:
            check()
            steps(number, done, total, sigma)

        return Search(plan, priors, mixing, m[part], all_seeds.cut(part), on_step, keep).run()

    with _evaluating(priors):
        found = run_all(one, pieces, workers)

    # Cloned out of inference mode, so that results can be used like any other tensor.
    def gather(name: str) -> Tensor:
        return torch.cat([getattr(f, name) for f in found]).to(mixture.device).clone()

    sources = gather("best")
    residual = metrics.rms(mixing.residual(sources, mixture.to(sources)))
    return Result(
        sources=sources,
        samples=gather("samples"),
        energies=gather("energies"),
        residual=residual,
        spent=torch.cat([f.spent for f in found]),
        settings={
            "sampler": plan.settings(),
            "mixing": mixing.describe(),
            "priors": [p.describe() for p in priors],
            "versions": {"basis": __version__, "torch": torch.__version__},
        },
        seed=seed,
        seconds=time.perf_counter() - started,
        exchangeable=exchangeable(priors, mixing),
        kept={
            sigma: torch.cat([f.kept[sigma] for f in found]).to(mixture.device).clone()
            for sigma in found[0].kept
        },
    )


def separate_each(
    mixtures: Iterable[Tensor], prior: Prior | Sequence[Prior], **settings: Any
) -> Iterator[Result]:
    """`separate` over a stream of batches: any number of mixtures in the memory of one batch.

    Args:
        mixtures: Batches, each as `separate` takes it.
        prior: One prior for all sources, or one per source.
        settings: Everything else that `separate` takes.
    """
    for batch in mixtures:
        yield separate(batch, prior, **settings)


def _plan(
    effort: str | int | Plan | None,
    sampler: str | Sampler | None,
    samples: int | None,
    choose: Choice | None,
    finish: bool,
    keep: Keep,
    options: dict[str, Any],
    *,
    priors: Sequence[Prior],
    mixing: Mixing,
) -> Plan:
    """The plan that the arguments of `separate` ask for."""
    if sampler is not None:
        if effort is not None:
            raise BasisError("give an effort or a sampler, not both")
        engine = make_sampler(sampler, **options)
        return one_round(engine, samples or 1, choose or "first", finish)
    given = [*options, *(["keep"] if keep else []), *([] if finish else ["finish"])]
    if given:
        raise BasisError(f"{', '.join(given)} goes with a sampler: give one, or leave it out")
    if isinstance(effort, Plan):
        return effort.with_choice(samples, choose)
    ordered = needs_order(priors, mixing)
    return plan_for(effort, mixing.sources, ordered=ordered).with_choice(samples, choose)


def _check_keep(keep: Keep) -> None:
    if isinstance(keep, str) and keep != "all":
        raise BasisError(f"keep takes noise levels or 'all', not {keep!r}")
    if not isinstance(keep, str) and any(not sigma > 0 for sigma in keep):
        raise BasisError(f"noise levels to keep must be positive, not {list(keep)}")


@contextmanager
def _evaluating(priors: Sequence[Prior]) -> Iterator[None]:
    """Priors in evaluation mode for the length of the block, then as they were before."""
    modules = {module: module.training for prior in priors for module in prior.modules()}
    for prior in priors:
        prior.eval()
    try:
        yield
    finally:
        for module, training in modules.items():
            module.training = training


class _StepCounter:
    """Adds up the steps of chunks that run side by side."""

    def __init__(self, chunks: int, callback: Callable[[Progress], None] | None) -> None:
        self.chunks, self.callback = chunks, callback
        self.done: dict[int, int] = {}
        self.lock = threading.Lock()

    def __call__(self, chunk: int, done: int, total: int, sigma: float) -> None:
        if self.callback is not None:
            with self.lock:
                self.done[chunk] = done
                self.callback(Progress(sum(self.done.values()), self.chunks * total, sigma))


class _ItemSeeds:
    """Seeds of the items of a batch, by label."""

    def __init__(self, observation: Tensor, seed: int) -> None:
        self.observation, self.seed = observation, seed
        self.known: dict[tuple[str, int], list[list[int]]] = {}
        self.lock = threading.Lock()

    def cut(self, part: slice) -> Seeds:
        """The same for a part of the batch."""

        def ask(label: str, chains: int) -> list[list[int]]:
            key = (label, chains)
            with self.lock:
                if key not in self.known:
                    self.known[key] = item_seeds(self.observation, chains, self.seed, label)
            return self.known[key][part]

        return ask
