"""`separate`: a prior, a mixing and a sampler become sources."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis._version import __version__
from basis.mixings import Mixing, mixtures
from basis.priors import Prior
from basis.samplers import SAMPLERS, Noise, Problem, Sampler, check_finite, item_seeds
from basis.samplers import finish as finish_sample
from basis.separation._ranking import Choice, Ranking
from basis.separation._search import Found, Plan, Report, Search, Seeds, have_an_order, plan_for
from basis.separation._workers import default_workers, run_all

__all__ = ["Progress", "Result", "separate", "separate_each"]


@dataclass(frozen=True)
class Progress:
    """Told after every step: how many of all steps (over all chunks) are done, and where the sampler stands."""

    done: int
    total: int
    sigma: float


@dataclass(frozen=True)
class Result:
    """What `separate` found.

    Attributes:
        sources: The separated sources in [0, 1], (batch, k, channels, height, width): the chosen sample, or with an
            effort the mean about it.
        samples: Every sample drawn, (batch, samples, k, channels, height, width); with an effort, those of the first round.
        energies: What the choice was made by, (batch, samples), in nats up to a constant; the least is the best.
            All zero where nothing was to be chosen.
        residual: Root mean square of m - A x for `sources`, (batch,).
        spent: Network evaluations spent on each mixture, all samples counted, (batch,).
        settings: Prior, mixing and sampler in full, with the versions that ran them.
        seed: The seed everything was drawn from.
        seconds: Time it took.
        kept: States at the end of the noise levels asked for: sigma to (batch, samples, k, ...), not clamped.
    """

    sources: Tensor
    samples: Tensor
    energies: Tensor
    residual: Tensor
    spent: Tensor
    settings: dict[str, Any]
    seed: int
    seconds: float
    kept: dict[float, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.sources.shape))
        return f"Result(sources {shape}, {self.evaluations} evaluations per mixture, {self.seconds:.1f} s)"

    @property
    def evaluations(self) -> int:
        """Network evaluations spent per mixture: the mean over mixtures, rounded up."""
        return math.ceil(self.spent.double().mean().item())

    @property
    def mean(self) -> Tensor:
        """The mean over samples, each first put in the order of the first one (sources of one prior have none)."""
        first = self.samples[:, 0]
        aligned = [metrics.reorder(s, first) for s in self.samples.unbind(1)]
        return torch.stack(aligned).mean(dim=0)


def separate(
    mixture: Tensor | np.ndarray,
    prior: Prior | Sequence[Prior],
    *,
    alphas: Sequence[float] | None = None,
    mixing: Mixing | None = None,
    effort: str | int | None = None,
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
    """Finds the sources that were mixed, by search (an effort) or by drawing from their posterior (a sampler).

    Args:
        mixture: What was observed, m, (batch, observed channels, height, width), in the units of sum_i alpha_i x_i with sources
            in [0, 1]. float32 or float64, a tensor or a numpy array; the state is kept in that precision.
        prior: One prior for all sources, or one per source.
        alphas: The weights of a plain mixture, one per source; (1, 1) by default.
        mixing: Any other mixing, instead of alphas.
        effort: "fast", "balanced" (the default where no sampler is given), "best", or a number of network
            evaluations per mixture: the search that was measured to be best for it.
        sampler: Instead of an effort: a name from `basis.samplers.SAMPLERS`, or a sampler.
        samples: Independent chains per mixture; 1 with a sampler, what the effort provides for otherwise.
        choose: Which sample becomes `sources`: the "first", or the best by denoising "energy", by "likelihood"
            (where the priors have one) or by the sum of "both". With a sampler "first" is the default, with an
            effort "energy".
        seed: The same seed gives an item the same separation in any batch and at any place in it.
        finish: Whether a sampler ends with one denoising and a projection onto what was observed.
        keep: Noise levels whose last state to keep (the nearest level is taken), or "all"; with a sampler.
        chunk: Chains advanced together; memory grows with this and not with the batch.
        workers: Chunks worked on at the same time, one core each; on a CPU as many as torch has threads.
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
    without = [p.name for p in priors if not p.has_likelihood]
    if choose in ("likelihood", "both") and without:
        raise BasisError(
            f"prior {without[0]!r} has no likelihood to choose by; choose 'energy', which needs none"
        )
    if isinstance(keep, str) and keep != "all":
        raise BasisError(f"keep takes noise levels or 'all', not {keep!r}")
    if not isinstance(keep, str) and any(not sigma > 0 for sigma in keep):
        raise BasisError(f"noise levels to keep must be positive, not {list(keep)}")
    work: _Draws | _Searches
    if sampler is None:
        if options or keep or not finish:
            given = [*options, *(["keep"] if keep else []), *([] if finish else ["finish"])]
            raise BasisError(f"{', '.join(given)} goes with a sampler: give one, or leave it out")
        ordered = have_an_order(priors, mixing)
        plan = plan_for(effort, mixing.sources, ordered=ordered).with_choice(samples, choose)
        work = _Searches(plan, priors, mixing)
    elif effort is not None:
        raise BasisError("give an effort or a sampler, not both")
    else:
        engine = make_sampler(sampler, **options)
        ranking = Ranking(choose or "first")
        work = _Draws(engine, samples or 1, ranking, finish, keep, priors, mixing)

    started = time.perf_counter()
    workers = default_workers(m.device) if workers is None else workers
    each = max(1, min(chunk // work.chains, math.ceil(len(m) / workers)))
    pieces = [slice(first, first + each) for first in range(0, len(m), each)]
    all_seeds = _Seeds(m, seed)
    count = _Count(len(pieces), progress)

    def one(number: int, part: slice, check: Callable[[], None]) -> Found:
        def report(done: int, total: int, sigma: float) -> None:
            check()
            count(number, done, total, sigma)

        return work.run(m[part], all_seeds.cut(part), report)

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
            "sampler": work.settings(),
            "mixing": mixing.describe(),
            "priors": [p.describe() for p in priors],
            "versions": {"basis": __version__, "torch": torch.__version__},
        },
        seed=seed,
        seconds=time.perf_counter() - started,
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


class _Count:
    """Adds up the steps of chunks that run side by side."""

    def __init__(self, chunks: int, tell: Callable[[Progress], None] | None) -> None:
        self.chunks, self.tell = chunks, tell
        self.done: dict[int, int] = {}
        self.lock = threading.Lock()

    def __call__(self, chunk: int, done: int, total: int, sigma: float) -> None:
        if self.tell is not None:
            with self.lock:
                self.done[chunk] = done
                self.tell(Progress(sum(self.done.values()), self.chunks * total, sigma))


class _Seeds:
    """Seeds of the items of a batch, by label: what `Search` and plain draws take their random numbers from."""

    def __init__(self, observation: Tensor, seed: int) -> None:
        self.observation, self.seed = observation, seed
        self.known: dict[tuple[str, int], list[list[int]]] = {}
        self.lock = threading.Lock()

    def cut(self, part: slice) -> Callable[[str, int], list[list[int]]]:
        """The same for a part of the batch."""

        def ask(label: str, chains: int) -> list[list[int]]:
            key = (label, chains)
            with self.lock:
                if key not in self.known:
                    self.known[key] = item_seeds(self.observation, chains, self.seed, label)
            return self.known[key][part]

        return ask


@dataclass(frozen=True)
class _Draws:
    """Independent samples of one sampler, and a choice among them."""

    sampler: Sampler
    chains: int
    ranking: Ranking
    finish: bool
    keep: Sequence[float] | Literal["all"]
    priors: Sequence[Prior]
    mixing: Mixing

    def run(self, m: Tensor, seeds: Seeds, report: Report) -> Found:
        rows = [s for row in seeds("", self.chains) for s in row]
        chains = m.repeat_interleave(self.chains, dim=0)
        problem = Problem(self.priors, self.mixing, chains, Noise(rows))
        levels: dict[float, Tensor] = {}
        for state in self.sampler.run(problem):
            if self.keep and state.level_done:
                levels[state.sigma] = state.x
            report(state.step, state.steps, state.sigma)
        check_finite(state.x)
        x = finish_sample(problem, state.x, state.sigma) if self.finish else state.x.clamp(0, 1)
        samples = x.unflatten(0, (len(m), self.chains))
        energies = self.ranking(problem, samples, [row[0] for row in seeds("rank", 1)])
        best = samples[torch.arange(len(m)), energies.argmin(dim=1).cpu()]
        spent = torch.full((len(m),), problem.evaluations * self.chains)
        kept = {
            sigma: value.unflatten(0, (len(m), self.chains))
            for sigma, value in _chosen(levels, self.keep).items()
        }
        return Found(best, samples, energies, spent, kept)

    def settings(self) -> dict[str, Any]:
        """What a run's record says of it."""
        return {
            **self.sampler.settings(),
            "samples": self.chains,
            "choose": self.ranking.by,
            "finish": self.finish,
        }


@dataclass(frozen=True)
class _Searches:
    """A plan for every mixture."""

    plan: Plan
    priors: Sequence[Prior]
    mixing: Mixing

    @property
    def chains(self) -> int:
        return self.plan.widest

    def run(self, m: Tensor, seeds: Seeds, report: Report) -> Found:
        return Search(self.plan, self.priors, self.mixing, m, seeds, report).run()

    def settings(self) -> dict[str, Any]:
        """What a run's record says of it."""
        return self.plan.settings()


def make_sampler(sampler: str | Sampler, **options: Any) -> Sampler:
    """A sampler from its name and settings."""
    if isinstance(sampler, Sampler):
        if options:
            raise BasisError(
                f"settings ({', '.join(options)}) go with a sampler's name; this one is made already"
            )
        return sampler
    if sampler not in SAMPLERS:
        raise BasisError(f"unknown sampler {sampler!r}: give one of {', '.join(SAMPLERS)}")
    kind = SAMPLERS[sampler]
    known = [f.name for f in dataclasses.fields(kind)]
    for name in options:
        if name not in known:
            raise BasisError(
                f"sampler {sampler!r} has no setting {name!r}; it has {', '.join(known)}"
            )
    for f in dataclasses.fields(kind):
        value = options.get(f.name, f.default)
        if f.type == "int" and not isinstance(value, int):
            raise BasisError(f"{f.name} must be a whole number, not {value!r}")
        if str(f.type).startswith("float") and not isinstance(value, int | float | None):
            raise BasisError(f"{f.name} must be a number, not {value!r}")
    return kind(**options)


def check_observation(observation: Tensor, priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """The observation where the prior computes, after checking that it fits prior and mixing."""
    if not isinstance(observation, Tensor):
        raise BasisError(f"the mixture must be a tensor, not {type(observation).__name__}")
    wanted = (mixing.observed, *priors[0].shape[1:])
    shape = tuple(observation.shape)
    if observation.ndim != 4 or shape[1:] != wanted:
        raise BasisError(
            f"the mixture has shape {shape}; prior {priors[0].name!r} and this mixing take (batch, "
            f"{', '.join(map(str, wanted))}){_remedy(shape, wanted)}"
        )
    if not len(observation):
        raise BasisError("the batch of mixtures is empty; give at least one")
    if observation.dtype not in (torch.float32, torch.float64):
        raise BasisError(f"the mixture must be float32 or float64, not {observation.dtype}")
    if not torch.isfinite(observation).all():
        raise BasisError("the mixture holds NaN or infinite values; every pixel must be a number")
    low, high = mixing.reach
    seen = observation if mixing.mask is None else observation * mixing.mask.to(observation)
    least, most = seen.min().item(), seen.max().item()
    slack = high - low + 10 * mixing.noise
    if least < low - slack or most > high + slack:
        raise BasisError(
            f"the mixture's values go from {least:g} to {most:g}, where sources in [0, 1] make {low:g} to {high:g}: "
            "divide 8-bit pixels by 255, and give the alphas it was mixed with"
        )
    device = priors[0].device
    return observation if device is None else observation.to(device)


def _remedy(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if len(shape) != 4:
        return ""
    if shape[1] != wanted[0]:
        return "; a prior of colour images is cifar10" if shape[1] == 3 and wanted[0] == 1 else ""
    larger = shape[2] >= wanted[1] and shape[3] >= wanted[2]
    return f"; basis.priors.Tiled(prior, {shape[2]}, {shape[3]}) takes larger ones" * larger


def check_nouns(
    prior: Prior | Sequence[Prior], alphas: Sequence[float] | None, mixing: Mixing | None
) -> tuple[list[Prior], Mixing]:
    """One prior per source and the mixing, after checking that they fit each other."""
    given = [prior] if isinstance(prior, Prior) else list(prior)
    if not given or not all(isinstance(p, Prior) for p in given):
        raise BasisError("prior must be a prior or a non-empty list of priors")
    if len({p.shape for p in given}) > 1:
        shapes = ", ".join(str(p.shape) for p in given)
        raise BasisError(f"all priors must have one image shape; these have {shapes}")
    if mixing is not None and alphas is not None:
        raise BasisError("give alphas or mixing, not both")
    if mixing is None:
        if alphas is None:
            alphas = (1.0,) * max(2, len(given))
        mixing = mixtures([alphas], given[0].shape[0])
    mixing = mixing.for_channels(given[0].shape[0])
    if len(given) == 1:
        given = given * mixing.sources
    if len(given) != mixing.sources:
        raise BasisError(
            f"{len(given)} priors for {mixing.sources} sources: give one prior for all or one per source"
        )
    return given, mixing


def _chosen(levels: dict[float, Tensor], keep: Sequence[float] | str) -> dict[float, Tensor]:
    if isinstance(keep, str):
        return levels
    nearest = {min(levels, key=lambda s: abs(math.log(s / want))) for want in keep}
    return {sigma: levels[sigma] for sigma in sorted(nearest, reverse=True)}
