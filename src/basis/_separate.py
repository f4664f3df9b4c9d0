"""`separate`: a prior, a mixing and a sampler become sources."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis._version import __version__
from basis.mixings import Mixing, mixtures
from basis.priors import Prior
from basis.samplers import SAMPLERS, Noise, Problem, Sampler, item_seeds

__all__ = ["Progress", "Result", "separate"]


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
        sources: The separated sources in [0, 1], (batch, k, channels, height, width): the first sample.
        samples: Every sample drawn, (batch, samples, k, channels, height, width).
        residual: Root mean square of m - A x for `sources`, (batch,).
        evaluations: Network evaluations spent per mixture, all samples counted.
        settings: Prior, mixing and sampler in full, with the versions that ran them.
        seed: The seed everything was drawn from.
        seconds: Time it took.
        kept: States at the end of the noise levels asked for: sigma to (batch, samples, k, ...), not clamped.
    """

    sources: Tensor
    samples: Tensor
    residual: Tensor
    evaluations: int
    settings: dict[str, Any]
    seed: int
    seconds: float
    kept: dict[float, Tensor] = field(default_factory=dict)

    @property
    def mean(self) -> Tensor:
        """The mean over samples, each first put in the order of the first one (sources of one prior have none)."""
        aligned = [metrics.reorder(s, self.sources) for s in self.samples.unbind(1)]
        return torch.stack(aligned).mean(dim=0)


def separate(
    mixture: Tensor,
    prior: Prior | Sequence[Prior],
    *,
    alphas: Sequence[float] | None = None,
    mixing: Mixing | None = None,
    sampler: str | Sampler = "basis",
    samples: int = 1,
    seed: int = 0,
    finish: bool = True,
    keep: Sequence[float] | Literal["all"] = (),
    chunk: int = 128,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Result:
    """Draws the sources that were mixed from their posterior.

    Args:
        mixture: What was observed, m, (batch, observed channels, height, width), in the units of sum_i alpha_i x_i with sources
            in [0, 1]. float32 or float64; the state is kept in that precision.
        prior: One prior for all sources, or one per source.
        alphas: The weights of a plain mixture, one per source; (1, 1) by default.
        mixing: Any other mixing, instead of alphas.
        sampler: A name from `basis.samplers.SAMPLERS`, or a sampler.
        samples: Independent chains per mixture.
        seed: The same seed gives an item the same separation in any batch and at any place in it.
        finish: Whether to end with one denoising and a projection onto what was observed.
        keep: Noise levels whose last state to keep (the nearest level is taken), or "all".
        chunk: Chains advanced together; memory grows with this and not with the batch.
        progress: Called after every step.
        options: Settings of a sampler given by name, for example `steps=50`.
    """
    priors, mixing = check_nouns(prior, alphas, mixing)
    m = check_observation(mixture, priors, mixing)
    engine = make_sampler(sampler, **options)
    if isinstance(keep, str) and keep != "all":
        raise BasisError(f"keep takes noise levels or 'all', not {keep!r}")
    if not isinstance(keep, str) and any(not sigma > 0 for sigma in keep):
        raise BasisError(f"noise levels to keep must be positive, not {list(keep)}")
    if samples < 1 or chunk < 1:
        raise BasisError(f"samples and chunk must be at least 1, not {samples} and {chunk}")

    started = time.perf_counter()
    chains = m.repeat_interleave(samples, dim=0)
    seeds = [seed for row in item_seeds(m, samples, seed) for seed in row]
    pieces = range(0, len(chains), chunk)
    found: list[Tensor] = []
    residuals: list[Tensor] = []
    kept: dict[float, list[Tensor]] = {}
    evaluations = 0
    for number, first in enumerate(pieces):
        part = slice(first, first + chunk)
        problem = Problem(priors, mixing, chains[part], Noise(seeds[part]))
        levels: dict[float, Tensor] = {}
        with torch.no_grad():
            for state in engine.run(problem):
                if keep and state.level_done:
                    levels[state.sigma] = state.x
                if progress is not None:
                    done = number * state.steps + state.step
                    progress(Progress(done, len(pieces) * state.steps, state.sigma))
            x = state.x
            if finish:
                x = _finish(problem, x, state.sigma)
            x = x.clamp(0, 1)
        found.append(x)
        residuals.append(metrics.rms(mixing.residual(x, problem.observation)))
        for sigma, value in _chosen(levels, keep).items():
            kept.setdefault(sigma, []).append(value)
        evaluations = problem.evaluations

    def gather(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts).unflatten(0, (len(m), samples)).to(mixture.device)

    drawn = gather(found)
    return Result(
        sources=drawn[:, 0],
        samples=drawn,
        residual=gather(residuals)[:, 0],
        evaluations=evaluations * samples,
        settings={
            "sampler": engine.settings(),
            "mixing": mixing.describe(),
            "priors": [p.describe() for p in priors],
            "samples": samples,
            "finish": finish,
            "versions": {"basis": __version__, "torch": torch.__version__},
        },
        seed=seed,
        seconds=time.perf_counter() - started,
        kept={sigma: gather(parts) for sigma, parts in kept.items()},
    )


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
    wanted = (mixing.observed, *priors[0].shape[1:])
    shape = tuple(observation.shape)
    if observation.ndim != 4 or shape[1:] != wanted:
        raise BasisError(
            f"the mixture has shape {shape}; this prior and mixing take (batch, "
            f"{', '.join(map(str, wanted))})"
        )
    if not len(observation):
        raise BasisError("the batch of mixtures is empty; give at least one")
    if observation.dtype not in (torch.float32, torch.float64):
        raise BasisError(f"the mixture must be float32 or float64, not {observation.dtype}")
    if not torch.isfinite(observation).all():
        raise BasisError("the mixture holds NaN or infinite values; every pixel must be a number")
    device = priors[0].device
    return observation if device is None else observation.to(device)


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
    if mixing.channels != given[0].shape[0]:
        raise BasisError(
            f"the mixing is for sources of {mixing.channels} channels, the prior's have "
            f"{given[0].shape[0]}"
        )
    if len(given) == 1:
        given = given * mixing.sources
    if len(given) != mixing.sources:
        raise BasisError(
            f"{len(given)} priors for {mixing.sources} sources: give one prior for all or one per source"
        )
    return given, mixing


def _finish(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """Takes off the last level's noise and meets the observation again.

    An exact observation is met exactly inside [0, 1]; a noisy one as far as its noise allows.
    """
    clean = problem.denoise(x, sigma)
    if problem.mixing.noise:
        return problem.mixing.posterior_mean(clean, problem.observation, sigma**2)
    return problem.mixing.project_box(clean, problem.observation)


def _chosen(levels: dict[float, Tensor], keep: Sequence[float] | str) -> dict[float, Tensor]:
    if isinstance(keep, str):
        return levels
    nearest = {min(levels, key=lambda s: abs(math.log(s / want))) for want in keep}
    return {sigma: levels[sigma] for sigma in sorted(nearest, reverse=True)}
