"""`separate`: from an observation and priors to sources."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from basis import metrics
from basis._inputs import (
    PriorLike,
    check_alphas,
    check_count,
    check_observation,
    check_priors,
    check_seed,
    is_rows,
    load_priors,
    make_mixing,
    make_plan,
    read_mask,
)
from basis._version import __version__
from basis.devices import default_workers, run_all
from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.priors.card import LIKELY
from basis.priors.likelihood import with_likelihood
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled, large_enough
from basis.progress import Callback, progress_bar
from basis.result import Result
from basis.samplers.sampler import Sampler
from basis.search.alphas import estimate_alphas
from basis.search.plan import Plan
from basis.search.plausibility import MET, typical_energies
from basis.search.ranking import exchangeable
from basis.search.search import Found, ItemSeeds, Search, StepCounter, evaluation_mode
from basis.settings import Estimate
from basis.signals.observation import Observation, Source, as_observation, read

MOST_SOURCES = 4
"""The largest number of sources that is tried if it is unknown."""
_ACCEPTED = LIKELY / 3  # the plausibility from which a number of sources is accepted
_UNIFORM = 0.2  # a source with less than this fraction of the std of another is nearly uniform
_NOT_IDENTIFIABLE = (
    "the alphas are not identifiable: this prior accepts its signals at any scale, so a larger "
    "alpha with a smaller source explains the observation as well; give the alphas"
)


def separate(
    observation: Source | Sequence[Source],
    prior: PriorLike | Sequence[PriorLike],
    alphas: Sequence[float | None] | Sequence[Sequence[float]] | Literal["unknown"] | None = None,
    *,
    mixing: Mixing | None = None,
    sources: int | Literal["unknown"] | None = None,
    noise: float = 0.0,
    mask: Any = None,
    method: str | int | Sampler | Plan = "balanced",
    estimate: Estimate = "mode",
    samples: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    progress: bool | Callback | None = None,
) -> Result:
    """Separates an observation m = sum_i alpha_i x_i into its sources x_i.

    Args:
        observation: A path, picture, array or tensor, (batch, *observed shape) or a single item; a
            list of these; or what `basis.read` or `basis.mix` returned. Floats are in units of
            sum_i alpha_i x_i with sources in the prior's range; 8-bit values are divided by 255.
            Pictures larger than the prior's are separated through overlapping tiles.
        prior: One prior for all sources or one per source: priors, their names or folders.
        alphas: The mixing coefficients, one per source; by default those of the observation's file,
            else 1 for every source. None for each unknown one, or "unknown" for all. Several rows
            are several observations of the same sources.
        mixing: Any other mixing, instead of alphas.
        sources: The number of sources, if alphas do not give it. "unknown" finds the least number
            from 1 to 4 whose plausibility is at least 0.01, with alphas of 1.
        noise: Standard deviation of Gaussian noise on the observation.
        mask: Ones where the observation is known and zeros elsewhere; an array, or the path of a
            picture that is white where it is known. A mask of the size that the observation had
            before `basis.read` changed it is resized like it.
        method: How to search: "fast", "balanced", "best" or a number of network evaluations per
            item. Or a sampler or its name, which draws one sample without a search; or a `Plan`.
        estimate: What `Result.sources` is. "mode": the most probable sources found. "mean": the
            posterior mean, closer to the truth but blurred if much is uncertain. "sample": one
            posterior sample, which looks like the prior's signals.
        samples: The number of posterior samples in `Result.samples`, for `mean`, `std`, `interval`
            and `modes`; none by default.
        seed: The same seed gives an item the same result in any batch, at any position. An item
            that occurs twice in a batch is sampled independently.
        device: Where to compute: "cpu", "cuda", or "auto" for a GPU if there is one. By default
            where the priors are.
        batch_size: Chains run together; memory grows with it.
        workers: Batches run in parallel on a CPU; by default the number of torch's threads.
        progress: True for a progress bar, False for none, or a function that is called with a
            `Progress` after every step; an exception in it ends the separation. By default there is
            a bar on a terminal and in notebooks; elsewhere work of more than 15 s is announced.
    """
    return separate_batch(**locals())


def separate_batch(
    observation: Source | Sequence[Source],
    prior: PriorLike | Sequence[PriorLike],
    alphas: Any = None,
    *,
    mixing: Mixing | None = None,
    sources: int | Literal["unknown"] | None = None,
    noise: float = 0.0,
    mask: Any = None,
    method: str | int | Sampler | Plan = "balanced",
    estimate: Estimate = "mode",
    samples: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    progress: bool | Callback | None = None,
    occurrences: Sequence[int] | None = None,
) -> Result:
    """`separate` for a part of something larger.

    Args:
        occurrences: How many items before this part equal each item; counted within the batch by
            default. The other arguments are those of `separate`.
    """
    check_count("samples", samples)
    check_count("batch_size", batch_size)
    check_count("workers", workers)
    priors = load_priors(prior, device)
    parts: list[Any] = list(observation) if isinstance(observation, list | tuple) else [observation]
    parts = [read(part) if isinstance(part, str | os.PathLike) else part for part in parts]
    own = [p.alphas for p in parts if isinstance(p, Observation) and p.alphas is not None]
    own_alphas = own[0].tolist() if own else None
    wanted, count_unknown = check_alphas(alphas, sources, mixing, own_alphas, len(priors))
    lone_mask = mask is not None and all(x is None for x in (alphas, sources, mixing))
    run = _Run(method, estimate, samples, check_seed(seed), batch_size, workers, occurrences)
    unknown = count_unknown or (wanted is not None and None in wanted)
    if unknown and (mask is not None or noise):
        raise BasisError("unknown alphas need a plain mixture: leave out mask and noise")
    known: Any = alphas if wanted is None else [1.0 if a is None else a for a in wanted]
    shape = priors[0].shape
    known = [1.0] * MOST_SOURCES if count_unknown else known
    everywhere = None if mixing is None else mixing.replace(mask=None)
    observed = make_mixing(known, everywhere, None, noise, shape).observed_shape(shape)
    given = as_observation(parts, observed, priors[0].value_range)
    m = given.values
    if is_rows(alphas):
        m = _stack(m, len(alphas), shape[0])
    if observed[1:] == shape[1:]:
        priors = large_enough(priors, tuple(m.shape[2:]))
    if mask is not None and given.original_size is not None:
        mask = read_mask(mask, tuple(m.shape[2:]), given.original_size)
    fitted = make_mixing(known, mixing, mask, noise, priors[0].shape)
    priors = check_priors(priors, fitted) if not count_unknown else priors
    m = check_observation(m, priors, fitted)
    names = given.names
    with progress_bar(progress, "separating", _task(m, priors[0])) as callback:
        run.progress = callback
        if count_unknown:
            result = _count_sources(m, priors[0], run)
        elif unknown:
            assert wanted is not None
            result = _estimate_alphas(m, priors, wanted, run)
        else:
            result = run(m, priors, fitted)
    result = replace(
        result,
        item_names=names[:: len(names) // len(m)],
        warnings=_add_warnings(result, own_alphas, alphas, priors[0], unknown, lone_mask),
    )
    truth = given.sources
    if truth is not None and truth.shape == result.sources.shape:
        result = result.reordered(truth.to(result.sources))
    return result


@dataclass
class _Run:
    """What is the same for every batch of one call of `separate`."""

    method: str | int | Sampler | Plan
    estimate: Estimate
    samples: int | None
    seed: int
    batch_size: int
    workers: int | None
    occurrences: Sequence[int] | None
    progress: Callback | None = None

    def __call__(self, m: Tensor, priors: list[Prior], mixing: Mixing) -> Result:
        """Separates observations whose mixing is known, (batch, *observed shape)."""
        if self.occurrences is not None and len(self.occurrences) != len(m):
            raise BasisError(f"{len(self.occurrences)} occurrences for {len(m)} items")
        plan = make_plan(self.method, self.estimate, self.samples, priors, mixing)
        if plan.ranking.by in ("likelihood", "both"):
            priors = with_likelihood(priors)
        started = time.perf_counter()
        workers = default_workers(m.device) if self.workers is None else self.workers
        size = max(1, min(self.batch_size // plan.widest, math.ceil(len(m) / workers)))
        batches = [slice(first, first + size) for first in range(0, len(m), size)]
        seeds = ItemSeeds(m, self.seed, self.occurrences)
        steps = StepCounter(len(batches), self.progress)

        def one(number: int, items: slice, check: Callable[[], None]) -> Found:
            def on_step(done: int, total: int, sigma: float, state: Tensor) -> None:
                check()
                steps(number, done, total, sigma, state)

            def own_seeds(label: str, chains: int) -> list[list[int]]:
                return seeds(label, chains, items)

            return Search(plan, priors, mixing.select(items), m[items], own_seeds, on_step).run()

        with evaluation_mode(priors):
            if plan.judge:
                for prior in priors:
                    typical_energies(prior)  # measured once, before batches need it in parallel
            found = run_all(one, batches, workers)

        # Copied out of inference mode, so that results can be used like any other tensor.
        def gather(get: Callable[[Any], Tensor]) -> Tensor:
            return torch.cat([get(part) for part in found]).clone()

        judged = all(part.plausibility is not None for part in found)
        sources = gather(lambda f: f.best)
        return Result(
            sources=sources,
            observation=m,
            mixing=mixing,
            names=source_names(priors),
            item_names=_numbers(len(m)),
            alphas=mixing_alphas(mixing, len(m)),
            samples=None if self.samples is None else gather(lambda f: f.samples),
            residual=metrics.rms(mixing.residual(sources, m.to(sources))),
            plausibility=gather(lambda f: f.plausibility.values) if judged else None,
            source_energies=gather(lambda f: f.plausibility.energies) if judged else None,
            warnings=tuple(
                line
                for f in found
                for line in f.plausibility.warnings()  # type: ignore[union-attr]
            )
            if judged
            else ("",) * len(m),
            item_evaluations=gather(lambda f: f.evaluations),
            energies=gather(lambda f: f.energies),
            exchangeable=exchangeable(priors, mixing),
            value_range=(priors[0].low, priors[0].high),
            prior_std=min(prior.std for prior in priors),
            settings={
                "method": plan.settings(),
                "mixing": mixing.describe(),
                "priors": [prior.describe() for prior in priors],
                "versions": {"basis": __version__, "torch": torch.__version__},
            },
            seed=self.seed,
            seconds=time.perf_counter() - started,
            trajectory={
                sigma: torch.cat([f.trajectory[sigma] for f in found]).clone()
                for sigma in found[0].trajectory
            },
        )


def source_names(priors: Sequence[Prior]) -> tuple[str, ...]:
    """A name per source: the prior's, numbered if it occurs several times."""
    names = [prior.name for prior in priors]
    return tuple(
        name if names.count(name) == 1 else f"{name}-{names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    )


def mixing_alphas(mixing: Mixing, count: int) -> Tensor | None:
    """The alphas of every item, (count, k); None if the mixing is not a sum of scaled sources."""
    if isinstance(mixing, PerItemMixing):
        return mixing.alphas
    alphas = mixing.plain_alphas
    return None if alphas is None else torch.tensor(alphas, dtype=torch.float64).repeat(count, 1)


def _task(m: Tensor, prior: Prior) -> str:
    """What is separated, for the announcement of long runs."""
    items = f"{len(m)} items of " if len(m) > 1 else ""
    text = items + "x".join(map(str, m.shape[2:]))
    tiles = ""
    if isinstance(prior, Tiled):
        tiles = f": {len(prior.corners)} tiles of {'x'.join(map(str, prior.prior.shape[1:]))}"
    title = f" ({prior.card.title})" if prior.card is not None and prior.card.title else ""
    return f"{text}{tiles}, prior {prior.name}{title}"


def _numbers(count: int) -> tuple[str, ...]:
    digits = max(2, len(str(count)))
    return tuple(f"{i + 1:0{digits}d}" for i in range(count))


def _stack(m: Tensor, rows: int, channels: int) -> Tensor:
    """Every `rows` observations of the same sources as one item with all their channels."""
    if rows == 1 or m.shape[1] != channels:
        return m
    if len(m) % rows:
        raise BasisError(
            f"{len(m)} observations for {rows} rows of alphas; give {rows} observations of the "
            "same sources for every item"
        )
    return m.unflatten(0, (-1, rows)).flatten(1, 2)


def _add_warnings(
    result: Result,
    own: Sequence[float] | None,
    alphas: Any,
    prior: Prior,
    unknown: bool,
    lone_mask: bool,
) -> tuple[str, ...]:
    """The warnings of every item, with those that concern all of them."""
    more = []
    if lone_mask and own is None:
        more.append("split into two sources; to fill in a single picture, give alphas (1,)")
    mixed = None if result.alphas is None else result.alphas[0].square().sum().sqrt().item()
    if mixed and prior.low is None and prior.high is None and result.mixing.mask is None:
        observed = result.observation.double().square().mean().sqrt().item()
        expected = mixed * math.hypot(prior.std, prior.center)
        if not 0.2 < observed / expected < 5:
            more.append(
                f"the values of the observation have a root mean square of {observed:.3g}, but "
                f"priors of std {prior.std:g} lead to {expected:.3g}; check the std of the prior"
            )
    if own is not None and result.alphas is not None and not unknown and not is_rows(alphas):
        used = result.alphas[0].tolist()
        if len(used) != len(own) or any(
            abs(a - b) > 1e-6 * max(1, abs(b)) for a, b in zip(used, own, strict=True)
        ):
            shown = [" ".join(f"{a:g}" for a in values) for values in (own, used)]
            more.append(f"the file was mixed with alphas {shown[0]}, but {shown[1]} was given")
    if isinstance(prior, Tiled) and prior.prior.card is not None:
        tile = "x".join(map(str, prior.prior.shape[1:]))
        more.append(f"separated through overlapping tiles of {tile}")
    own_lines = zip(result.warnings, _uniform(result), strict=True)
    return tuple("; ".join(filter(None, (*lines, *more))) for lines in own_lines)


def _uniform(result: Result) -> list[str]:
    """Names sources that are nearly uniform next to others of the same prior, for every item."""
    if result.counts is not None or len({p["name"] for p in result.settings["priors"]}) > 1:
        return [""] * len(result.sources)
    stds = result.sources.flatten(2).std(dim=2)
    flat = stds < _UNIFORM * stds.amax(dim=1, keepdim=True)
    named = [", ".join(str(i + 1) for i, f in enumerate(row) if f) for row in flat.tolist()]
    return [
        f"source {n} is nearly uniform: the split failed or is empty" if n else "" for n in named
    ]


def _estimate_alphas(
    m: Tensor, priors: list[Prior], given: Sequence[float | None], run: _Run
) -> Result:
    """Separates with unknown alphas, which are estimated first."""
    started = time.perf_counter()
    with evaluation_mode(priors):
        found = estimate_alphas(
            m, priors, given, seed=run.seed, batch_size=run.batch_size, progress=run.progress
        )
    seconds = time.perf_counter() - started
    # Copied out of inference mode, so that they can be used like any other tensor.
    alphas = found.values.clone()
    free = [i for i, a in enumerate(given) if a is None]
    if len(set(map(id, priors))) == 1 and len(free) > 1:
        # Sources of one prior differ only in their alphas: the largest comes first.
        alphas[:, free] = alphas[:, free].sort(dim=1, descending=True).values
    result = run(m, priors, PerItemMixing(alphas))
    identifiable = found.identifiable.clone()
    return replace(
        result,
        identifiable=identifiable,
        item_evaluations=result.item_evaluations + found.evaluations.clone(),
        seconds=result.seconds + seconds,
        warnings=tuple(
            line if known else "; ".join(filter(None, (line, _NOT_IDENTIFIABLE)))
            for line, known in zip(result.warnings, identifiable.tolist(), strict=True)
        ),
    )


def _count_sources(m: Tensor, prior: Prior, run: _Run) -> Result:
    """Separates into the least number of sources whose plausibility is large enough."""
    tried: dict[int, Result] = {}
    evaluations = torch.zeros(len(m), dtype=torch.long)
    scores = torch.full((len(m), MOST_SOURCES), -1.0)
    positions = torch.full((len(m), MOST_SOURCES), -1)
    left = torch.arange(len(m))
    for k in range(1, MOST_SOURCES + 1):
        mixing = make_mixing([1.0] * k, None, None, 0.0, prior.shape)
        # Observations far above what k sources can reach need more of them.
        top = None if prior.high is None or prior.low is None else k * prior.high
        beyond = torch.zeros(len(left), dtype=torch.bool)
        if top is not None and prior.low == 0 and k < MOST_SOURCES:
            beyond = m[left].flatten(1).amax(dim=1).cpu() > top * (1 + MET)
        now = left[~beyond]
        if len(now):
            result = tried[k - 1] = run(m[now], [prior] * k, mixing)
            if result.plausibility is None:
                raise BasisError(
                    "the number of sources is found by plausibility, but prior "
                    f"{prior.name!r} has no typical energies; measure them with "
                    "`basis priors measure`"
                )
            met = result.residual.cpu() <= MET * (prior.std / 0.3 if top is None else top / k)
            scores[now, k - 1] = torch.where(met, result.plausibility, -0.5)
            positions[now, k - 1] = torch.arange(len(now))
            evaluations[now] += result.item_evaluations
        left = left[scores[left, k - 1] < _ACCEPTED]
        if not len(left):
            break
    accepted = scores >= _ACCEPTED
    first = accepted.int().argmax(dim=1)
    chosen = torch.where(accepted.any(dim=1), first, scores.argmax(dim=1)).tolist()
    return _join(m, [(tried[k], int(positions[i, k])) for i, k in enumerate(chosen)], evaluations)


def _join(m: Tensor, found: list[tuple[Result, int]], evaluations: Tensor) -> Result:
    """One result from items of results with different numbers of sources.

    Sources that an item does not have are zero, and so are their alphas.
    """
    results = list({id(result): result for result, _ in found}.values())
    largest = max(results, key=lambda r: r.sources.shape[1])
    most = largest.sources.shape[1]
    counts = torch.tensor([result.sources.shape[1] for result, _ in found])
    alphas = (torch.arange(most) < counts[:, None]).double()
    chains = min(r.energies.shape[1] for r in results)

    def stack(name: str, dim: int | None) -> Any:
        values = [getattr(result, name) for result, _ in found]
        if values[0] is None:
            return None
        items = [value[at] for value, (_, at) in zip(values, found, strict=True)]
        return torch.stack([x if dim is None else _padded(x, most, dim) for x in items])

    return replace(
        largest,
        sources=stack("sources", 0),
        samples=stack("samples", 1),
        energies=torch.stack([result.energies[at, :chains] for result, at in found]),
        residual=stack("residual", None),
        plausibility=stack("plausibility", None),
        source_energies=stack("source_energies", 0),
        warnings=tuple(result.warnings[at] for result, at in found),
        item_evaluations=evaluations,
        seconds=sum(r.seconds for r in results),
        alphas=alphas,
        counts=counts,
        trajectory={},
        observation=m,
        mixing=PerItemMixing(alphas),
    )


def _padded(x: Tensor, count: int, dim: int) -> Tensor:
    missing = count - x.shape[dim]
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=dim) if missing else x
