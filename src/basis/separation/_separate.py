"""`separate`: a prior, a mixing and a sampler become sources."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from basis import metrics
from basis._errors import BasisError
from basis._version import __version__
from basis.data import MOST_PIXELS, Observed, open_mixtures, read_observation
from basis.mixings import Mixing, WeightedMixing
from basis.priors import Prior, with_likelihood
from basis.samplers import Sampler
from basis.separation._accounts import ItemSeeds, StepCounter, evaluating
from basis.separation._inputs import (
    PriorLike,
    as_priors,
    check_count,
    check_options,
    check_seed,
    warn_of_weights,
)
from basis.separation._nouns import (
    check_nouns,
    check_observation,
    is_unknown,
    make_sampler,
    told_alphas,
)
from basis.separation._order import exchangeable, needs_order
from basis.separation._plan import Plan, one_round, plan_for
from basis.separation._plausibility import Verdict, typical_energies
from basis.separation._result import Progress, Result
from basis.separation._search import Found, Keep, Search
from basis.separation._words import Choice, Effort, SamplerName
from basis.separation._workers import default_workers, run_all


def separate(
    mixture: Observed | Sequence[Observed],
    prior: PriorLike | Sequence[PriorLike],
    *,
    alphas: Sequence[float | None] | Literal["unknown"] | None = None,
    sources: int | Literal["unknown"] | None = None,
    mixing: Mixing | None = None,
    effort: Effort | int | Plan | None = None,
    sampler: SamplerName | Sampler | None = None,
    samples: int | None = None,
    choose: Choice | None = None,
    seed: int = 0,
    finish: bool = True,
    keep: Sequence[float] | Literal["all"] = (),
    chunk: int = 128,
    workers: int | None = None,
    occurrences: Sequence[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
    convert: bool = False,
    invert: bool = False,
    resize: bool = False,
    **options: Any,
) -> Result:
    """Finds the sources that were mixed, by search (an effort) or by drawing from their posterior.

    Args:
        mixture: What was observed, m, (batch, *observed), in the units of sum_i alpha_i x_i with
            sources in the priors' range: a tensor or a numpy array, float32 or float64, in which
            precision the state is kept, or uint8, which stands for [0, 1]. One observation may
            leave out the batch and a single channel, (height, width), and a picture may have its
            channels last. Or the path of a picture, .npy or .npz, a PIL image, or a list of these.
        prior: One prior for all sources, or one per source; or their names or folders.
        alphas: The weights of a plain mixture, one per source; those of the file by default where
            it brings them, else (1, 1). Those that are None, or all of them with "unknown", are
            estimated with the sources.
        sources: The number of sources where alphas do not say it; "unknown" takes the least number
            of 1 to 4, each with weight 1, that explains a mixture plausibly.
        mixing: Any other mixing, instead of alphas.
        effort: "fast", "balanced" (the default where no sampler is given), "best", or a number of
            network evaluations per mixture: the search that was measured to be best for it. Or a
            `Plan` of your own.
        sampler: Instead of an effort: a name from `basis.samplers.SAMPLERS`, or a sampler.
        samples: Independent draws of the posterior per mixture; 1 with a sampler. An effort draws
            them beside its search, by `gibbs`, and none by default.
        choose: Which sample becomes `sources`: the "first", or the best by denoising "energy", by
            "likelihood" (score priors answer by their probability flow, at many evaluations) or by
            the sum of "both". With a sampler "first" is the default, with an effort "energy". Or
            the "mean" of all: where a mixture leaves much open, as one of photos does, it is
            blurred and nearer to the truth than any one explanation. With an effort, "draw" spends
            all of it on one draw of the posterior: sources that look like the prior's signals,
            farther from the truth. A sampler's "first" is such a draw.
        seed: The same seed gives an item the same separation in any batch and at any place in it.
            A mixture that is repeated in a batch is another draw each time: what counts is what was
            observed and how often it came before.
        finish: Whether a sampler ends with one denoising and a projection onto what was observed.
        keep: Noise levels whose last state to keep (the nearest level is taken), or "all"; with a
            sampler.
        chunk: Chains advanced together; memory grows with this and not with the batch.
        workers: Chunks worked on at the same time, one core each; on a CPU as many as torch has
            threads.
        occurrences: How often each mixture came before, where the batch is a part of something
            larger; counted within the batch by default.
        progress: Called after every step, with the state of the chains; what it raises ends the
            separation.
        device: Where to compute: "cpu", "cuda", or "auto" for a GPU where there is one; the priors
            are moved there. By default where they are.
        convert: Make a colour picture grey, or a grey one colour, as the priors need it. (Grey
            saved as RGB, all channels alike, needs no asking.)
        invert: Exchange light and dark: digits written in black on white.
        resize: Cut and resize a picture to what the priors need.
        options: Settings of a sampler given by name, for example `steps=50`.
    """
    check_options(options, separate, sampler if isinstance(sampler, str) else None)
    seed, samples = check_seed(seed), check_count("samples", samples)
    check_count("chunk", chunk)
    check_count("workers", workers)
    _check_keep(keep)
    given = as_priors(prior, device)
    parts, brought = open_mixtures(
        mixture, len(given[0].shape) - 1, None if resize else MOST_PIXELS
    )
    fit: dict[str, Any] = {"convert": convert, "invert": invert, "resize": resize}
    fit |= {"low": given[0].low, "high": given[0].high}
    if is_unknown(alphas, sources):
        from basis.separation._unknown import separate_unknown  # which calls this

        same = {
            "effort": effort, "sampler": sampler, "samples": samples, "choose": choose,
            "seed": seed, "finish": finish, "keep": keep, "chunk": chunk, "workers": workers,
            "progress": progress,
        }  # fmt: skip
        whole = read_observation(parts, given[0].shape, **fit)
        one_or_all = given[0] if len(given) == 1 else given
        return separate_unknown(whole, one_or_all, alphas, sources, mixing, **same, **options)
    weights = told_alphas(alphas, sources, mixing)
    if weights is None and mixing is None:
        weights = brought
    priors, mixing = check_nouns(given, weights, mixing)
    warn_of_weights(mixing, brought)
    observed = read_observation(parts, mixing.observed_shape(priors[0].shape), **fit)
    m = check_observation(observed, priors, mixing)
    if occurrences is not None and len(occurrences) != len(m):
        raise BasisError(f"{len(occurrences)} occurrences for {len(m)} mixtures; give one for each")
    plan = _plan(
        effort, sampler, samples, choose, finish, keep, options, priors=priors, mixing=mixing
    )
    if plan.ranking.by in ("likelihood", "both"):
        priors = with_likelihood(priors)

    started = time.perf_counter()
    workers = default_workers(m.device) if workers is None else workers
    each = max(1, min(chunk // plan.widest, math.ceil(len(m) / workers)))
    pieces = [slice(first, first + each) for first in range(0, len(m), each)]
    all_seeds = ItemSeeds(m, seed, occurrences)
    steps = StepCounter(len(pieces), progress)

    def one(number: int, part: slice, check: Callable[[], None]) -> Found:
        def on_step(done: int, total: int, sigma: float, state: Tensor) -> None:
            check()
            steps(number, done, total, sigma, state)

        return Search(
            plan, priors, mixing.rows(part), m[part], all_seeds.cut(part), on_step, keep
        ).run()

    with evaluating(priors):
        if plan.verdict:
            for p in priors:
                typical_energies(p)  # measured once, before chunks ask for it side by side
        found = run_all(one, pieces, workers)

    # Copied out of inference mode, so that results can be used like any other tensor.
    def gather(name: str) -> Tensor:
        first = getattr(found[0], name)
        whole = torch.empty((len(m), *first.shape[1:]), dtype=first.dtype, device=observed.device)
        for part, piece in zip(pieces, found, strict=True):
            whole[part] = getattr(piece, name)
        return whole

    best = gather("best")
    residual = metrics.rms(mixing.residual(best, observed.to(best)))
    return Result(
        sources=best,
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
        drawn=sampler is not None or plan.draws is not None,
        alphas=_alphas(mixing, len(m)),
        **_verdict([f.verdict for f in found]),
        kept={
            sigma: torch.cat([f.kept[sigma] for f in found]).to(observed.device).clone()
            for sigma in found[0].kept
        },
        mixture=observed,
        mixing=mixing,
        span=(priors[0].low, priors[0].high),
    )


def separate_each(
    mixtures: Iterable[Observed], prior: PriorLike | Sequence[PriorLike], **settings: Any
) -> Iterator[Result]:
    """`separate` over a stream of batches: any number of mixtures in the memory of one batch.

    Args:
        mixtures: Batches (batch, *observed), each as `separate` takes it.
        prior: One prior for all sources, or one per source; or their names or folders.
        settings: Everything else that `separate` takes.
    """
    prior = as_priors(prior, settings.get("device"))
    for batch in mixtures:
        yield separate(batch, prior, **settings)


def settled_plan(
    prior: Prior | Sequence[Prior],
    *,
    alphas: Sequence[float] | None = None,
    mixing: Mixing | None = None,
    effort: Effort | int | Plan | None = None,
    sampler: str | Sampler | None = None,
    samples: int | None = None,
    choose: Choice | None = None,
    finish: bool = True,
    **options: Any,
) -> Plan:
    """The plan that `separate` runs when it is given the same arguments."""
    given = [prior] if isinstance(prior, Prior) else list(prior)
    priors, mixing = check_nouns(given, alphas, mixing)
    return _plan(
        effort, sampler, samples, choose, finish, (), options, priors=priors, mixing=mixing
    )


def _plan(
    effort: Effort | int | Plan | None,
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
    cost = sum(prior.tile_cost for prior in priors)
    plan = plan_for(effort, mixing.sources, ordered=ordered, cost=cost, choose=choose)
    return plan.with_choice(samples, None)


def _alphas(mixing: Mixing, count: int) -> Tensor | None:
    """The weights of every item of a plain mixture."""
    if isinstance(mixing, WeightedMixing):
        return mixing.alphas
    weights = mixing.weights
    return None if weights is None else torch.tensor(weights, dtype=torch.float64).repeat(count, 1)


def _verdict(parts: Sequence[Verdict | None]) -> dict[str, Any]:
    """What a result says of its plausibility."""
    told = [part for part in parts if part is not None]
    if len(told) < len(parts):
        return {}
    return {
        "plausibility": torch.cat([v.plausibility for v in told]).clone(),
        "source_energies": torch.cat([v.energies for v in told]).clone(),
        "remarks": tuple(line for v in told for line in v.remarks()),
    }


def _check_keep(keep: Keep) -> None:
    if isinstance(keep, str) and keep != "all":
        raise BasisError(f"keep takes noise levels or 'all', not {keep!r}")
    if not isinstance(keep, str) and any(not sigma > 0 for sigma in keep):
        raise BasisError(f"noise levels to keep must be positive, not {list(keep)}")
