"""`separate` where weights, or the number of sources, are not known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.mixings import Mixing, WeightedMixing
from basis.priors import LIKELY, Prior
from basis.separation._accounts import evaluating
from basis.separation._nouns import check_nouns, check_observation
from basis.separation._plausibility import MET
from basis.separation._result import Result
from basis.separation._separate import separate
from basis.separation._weights_search import find_weights

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
    result = separate(mixture, prior, mixing=WeightedMixing(alphas_found), **settings)
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
                    "no typical energies: basis.separation.measure_energies measures them"
                )
            met = r.residual.cpu() <= MET * (prior.spread / 0.3 if top is None else top / k)
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
        mixing=WeightedMixing(alphas),
    )


_ROWS = ("sources", "samples", "energies", "residual", "plausibility", "source_energies")


def _padded(x: Tensor, count: int, dim: int) -> Tensor:
    missing = count - x.shape[dim]
    if not missing:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim=dim)
