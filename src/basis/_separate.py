"""`separate`: a prior, a mixing and a sampler become sources."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from basis import metrics
from basis._inputs import (
    PriorLike,
    as_priors,
    check_count,
    check_nouns,
    check_observation,
    check_options,
    check_seed,
    is_unknown,
    make_sampler,
    told_alphas,
    warn_of_weights,
)
from basis._version import __version__
from basis.devices import default_workers, run_all
from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.priors.card import LIKELY
from basis.priors.likelihood import with_likelihood
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.result import Result
from basis.samplers.sampler import Sampler
from basis.search.alphas import find_weights
from basis.search.plan import Plan, one_round, plan_for
from basis.search.plausibility import MET, Verdict, typical_energies
from basis.search.ranking import exchangeable, needs_order
from basis.search.search import Found, ItemSeeds, Keep, Search, StepCounter, evaluating
from basis.settings import Choice, Effort, SamplerName
from basis.signals.observation import Observed, open_mixtures, read_observation
from basis.signals.pictures import MOST_PIXELS


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
            plan, priors, mixing.select(part), m[part], all_seeds.cut(part), on_step, keep
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
    cost = sum(prior._tile_cost for prior in priors)
    plan = plan_for(effort, mixing.sources, ordered=ordered, cost=cost, choose=choose)
    return plan.with_choice(samples, None)


def _alphas(mixing: Mixing, count: int) -> Tensor | None:
    """The weights of every item of a plain mixture."""
    if isinstance(mixing, PerItemMixing):
        return mixing.alphas
    weights = mixing.plain_alphas
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


MOST_SOURCES = 4
"""The largest number of sources that is tried where it is not known."""
_ACCEPTED = LIKELY / 3  # plausibility from which a number of sources is taken
_OPEN = (
    "the weights cannot be known: this prior takes its sources at any scale, so that a larger "
    "weight of a smaller source explains the mixture as well; give the alphas"
)


def separate_unknown(
    mixture: Tensor,
    prior: Prior | Sequence[Prior],
    alphas: Sequence[float | None] | str | None,
    sources: int | str | None,
    mixing: Mixing | None,
    **settings: Any,
) -> Result:
    """`separate` with weights, or the number of sources, estimated by the priors."""
    if mixing is not None:
        raise BasisError(
            "unknown weights and numbers of sources go with plain mixtures: leave mixing out"
        )
    if sources == "unknown":
        if alphas is not None or not isinstance(prior, Prior):
            raise BasisError(
                "an unknown number of sources takes one prior and weights of 1: leave alphas out"
            )
        return _count_sources(mixture, prior, settings)
    given = [1] if isinstance(prior, Prior) else list(prior)
    if isinstance(alphas, str) or alphas is None:
        count = sources if isinstance(sources, int) else max(2, len(given))
        wanted: list[float | None] = [None] * count
    else:
        wanted = list(alphas)
        if isinstance(sources, int) and sources != len(wanted):
            raise BasisError(f"{len(wanted)} alphas for {sources} sources; give one for each")
    told = [1.0 if a is None else a for a in wanted]
    priors, plain = check_nouns([prior] if isinstance(prior, Prior) else list(prior), told, None)
    m = check_observation(mixture, priors, plain)
    seed, chunk = settings.get("seed", 0), settings.get("chunk", 128)
    started = time.perf_counter()
    with evaluating(priors):
        found = find_weights(
            m, priors, wanted, seed=seed, chunk=chunk, progress=settings.get("progress")
        )
    searching = time.perf_counter() - started
    # Cloned out of inference mode, so that they can be used like any other tensor.
    alphas_found, spent = found.alphas.clone(), found.spent.clone()
    free = [i for i, a in enumerate(wanted) if a is None]
    if isinstance(prior, Prior) and len(free) > 1:
        # Sources of one prior are told apart by their weights alone: the heaviest comes first.
        alphas_found[:, free] = alphas_found[:, free].sort(dim=1, descending=True).values
    result = separate(mixture, prior, mixing=PerItemMixing(alphas_found), **settings)
    remarks = [
        line if known else f"{line}; {_OPEN}".removeprefix("; ")
        for line, known in zip(result.remarks or [""] * len(m), found.known.tolist(), strict=True)
    ]
    return replace(
        result,
        alphas=alphas_found,
        alphas_known=found.known.clone(),
        spent=result.spent + spent,
        seconds=result.seconds + searching,
        remarks=tuple(remarks),
    )


def _count_sources(mixture: Tensor, prior: Prior, settings: dict[str, Any]) -> Result:
    """The least number of sources that explains each mixture plausibly."""
    tried: dict[int, Result] = {}
    batch = len(mixture)
    spent = torch.zeros(batch, dtype=torch.long)
    scores = torch.full((batch, MOST_SOURCES), -1.0)
    places = torch.full((batch, MOST_SOURCES), -1)
    left = torch.arange(batch)
    for k in range(1, MOST_SOURCES + 1):
        # Observations above what k sources reach are far off and would be refused: they need more.
        top = None if prior.high is None or prior.low is None else k * prior.high
        beyond = torch.zeros(len(left), dtype=torch.bool)
        if top is not None and prior.low == 0 and k < MOST_SOURCES:
            beyond = mixture[left].flatten(1).amax(dim=1).cpu() > top * (1 + MET)
        now = left[~beyond]
        if len(now):
            r = separate(mixture[now], prior, alphas=(1.0,) * k, **settings)
            tried[k - 1] = r
            if r.plausibility is None:
                raise BasisError(
                    f"the number of sources is told by plausibility, and prior {prior.name!r} has "
                    "no typical energies: basis.search.measure_energies measures them"
                )
            met = r.residual.cpu() <= MET * (prior.std / 0.3 if top is None else top / k)
            scores[now, k - 1] = torch.where(met, r.plausibility, -0.5)
            places[now, k - 1] = torch.arange(len(now))
            spent[now] += r.spent
        left = left[scores[left, k - 1] < _ACCEPTED]
        if not len(left):
            break
    accepted = scores >= _ACCEPTED
    first = accepted.int().argmax(dim=1)
    chosen = torch.where(accepted.any(dim=1), first, scores.argmax(dim=1))
    return _gather(mixture, tried, chosen, places, spent)


def _gather(
    mixture: Tensor, tried: dict[int, Result], chosen: Tensor, places: Tensor, spent: Tensor
) -> Result:
    """One result of items with different numbers of sources: those that are missing are zero, and
    so are their weights.
    """
    most = int(chosen.max()) + 1
    used = [tried[k] for k in sorted(set(chosen.tolist()))]
    draws = min(r.samples.shape[1] for r in used)
    candidates = min(r.energies.shape[1] for r in used)
    rows: dict[str, list[Any]] = {n: [] for n in _ROWS}
    alphas = torch.zeros(len(chosen), most, dtype=torch.float64)
    for item, k in enumerate(chosen.tolist()):
        r, at = tried[k], int(places[item, k])
        alphas[item, : k + 1] = 1.0
        rows["sources"].append(_padded(r.sources[at], most, 0))
        rows["samples"].append(_padded(r.samples[at, :draws], most, 1))
        rows["energies"].append(r.energies[at, :candidates])
        rows["residual"].append(r.residual[at])
        assert r.plausibility is not None and r.source_energies is not None
        rows["plausibility"].append(r.plausibility[at])
        rows["source_energies"].append(_padded(r.source_energies[at], most, 0))
    stacked: dict[str, Any] = {name: torch.stack(values) for name, values in rows.items()}
    widest = max(used, key=lambda r: r.sources.shape[1])
    return replace(
        widest,
        **stacked,
        remarks=tuple(tried[k].remarks[int(places[i, k])] for i, k in enumerate(chosen.tolist())),
        spent=spent,
        seconds=sum(r.seconds for r in tried.values()),
        alphas=alphas,
        counts=chosen + 1,
        kept={},
        mixture=mixture,
        mixing=PerItemMixing(alphas),
    )


_ROWS = ("sources", "samples", "energies", "residual", "plausibility", "source_energies")


def _padded(x: Tensor, count: int, dim: int) -> Tensor:
    missing = count - x.shape[dim]
    if not missing:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=dim)
