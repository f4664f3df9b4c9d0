"""How plausible are separated sources? Their energies beside those of the prior's own signals.

A residual says nothing of it: sources meet a mixture however it was made. Energies do: of right
sources they are those that separated held-out images have, of wrong ones larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basis import metrics
from basis.priors.card import LIKELY, Energies, quantiles
from basis.priors.prior import Prior
from basis.samplers.problem import Problem
from basis.search.ranking import log_widths

LEVELS = (1 / 3, 2 / 3, 4 / 3)
"""Noise levels of the energy, in spreads of the prior; one evaluation of each source at each."""
MET = 1 / 255
"""The residual, in widths of the range, from which no sources make a mixture."""
_TIES, _TIED = 8, 0.01  # places, and share of them, that have the largest value of a clipped sum
_INNER = 0.95  # share of the reach below which the largest value lies then
_MISFIT = (
    "no sources in the prior's range make this mixture; check the range of its values and the "
    "weights (alphas) first"
)
_CUT = (
    "many places have the largest value exactly, as in a clipped sum or in one mixed with other "
    "weights; check the weights (alphas) and whether the mixture was cut off at white "
    "(mixing.clipped() says so, or --clipped)"
)
_ELSE = (
    "the sources are unlike what the prior knows; check the weights (alphas) and the number of "
    "sources first, then whether the picture is inverted{clipped}, then whether more effort helps, "
    "then the prior"
)
_DRAWN = 256  # signals that a prior which draws exactly is measured on


@dataclass(frozen=True)
class Verdict:
    """How plausible the sources of a batch are.

    Attributes:
        plausibility: (batch,), 0 to 1: how often sources that the prior separated from mixtures of
            its own signals are as improbable as these.
        energies: (batch, sources), in nats up to a constant.
        misfit: (batch,) of bool: no sources in their range make this mixture.
        saturated: (batch,) of bool: the mixture looks clipped.
        limited: Whether the mixing says already that values are cut off or rounded.
    """

    plausibility: Tensor
    energies: Tensor
    misfit: Tensor
    saturated: Tensor
    limited: bool = False

    def remarks(self) -> tuple[str, ...]:
        """A sentence for every mixture whose sources are not plausible, nothing for the others."""
        found = []
        for p, misfit, cut in zip(
            self.plausibility.tolist(), self.misfit.tolist(), self.saturated.tolist(), strict=True
        ):
            if p >= LIKELY:
                found.append("")
            elif misfit:
                found.append(f"not plausible ({p:.2g}): {_MISFIT}")
            elif cut:
                found.append(f"not plausible ({p:.2g}): {_CUT}")
            else:
                check = _ELSE.format(clipped="" if self.limited else " or clipped")
                found.append(f"not plausible ({p:.2g}): {check}")
        return tuple(found)


def energy(prior: Prior, x: Tensor, levels: Sequence[float] = LEVELS) -> Tensor:
    """The energy of each signal under a prior, in nats up to a constant: (batch,).

    The noise is the same for every signal, so that what differs is the signals.

    Args:
        x: (batch, *prior.shape).
        levels: Noise levels in spreads of the prior.
    """
    sigmas = judged_levels(prior, levels)
    total = x.new_zeros(len(x), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for sigma, weight in zip(sigmas, log_widths(sigmas), strict=True):
        noise = torch.randn(prior.shape, generator=generator).to(x)
        error = prior.denoise(x + sigma * noise, sigma) - x
        total += weight / sigma**2 * error.flatten(1).double().square().sum(dim=1)
    return total


def judged_levels(prior: Prior, levels: Sequence[float] = LEVELS) -> list[float]:
    """Noise levels from their multiples of the spread, within those that the prior knows."""
    return sorted({min(max(v * prior.std, prior.sigma_min), prior.sigma_max) for v in levels})


def typical_energies(prior: Prior) -> Energies | None:
    """The energies of a prior's card, or those of its exact samples, measured once; else None."""
    if prior.energies is None and prior.exact_samples is not None:
        with torch.no_grad():
            drawn = prior.exact_samples(_DRAWN, torch.Generator().manual_seed(0))
            prior.energies = energies_of(prior, drawn, about={"origin": "its own samples"})
    return prior.energies


def energies_of(
    prior: Prior,
    images: Tensor,
    separated: Tensor | None = None,
    *,
    about: dict[str, object] | None = None,
    batch: int = 64,
) -> Energies:
    """The distribution of the energies of signals, to be kept as `prior.energies`.

    Args:
        images: (n, *prior.shape), signals of the prior's kind that it has not seen.
        separated: (n, *prior.shape), sources separated from mixtures of such signals.
        about: What the card shall say of them.
        batch: Signals at once.
    """

    @torch.no_grad()
    def curve(signals: Tensor) -> tuple[float, ...]:
        parts = [
            energy(prior, part.to(prior.device or part.device)) for part in signals.split(batch)
        ]
        return quantiles(torch.cat(parts).tolist())

    return Energies(
        levels=LEVELS,
        values=math.prod(prior.shape),
        images=curve(images),
        separated=() if separated is None else curve(separated),
        about=about or {},
    )


def judging_calls(priors: Sequence[Prior]) -> int:
    """Network calls per source that a verdict takes; 0 where there can be none."""
    known = [typical_energies(prior.base_prior) for prior in priors]
    return max((len(e.levels) for e in known if e is not None), default=0) if all(known) else 0


def judge(problem: Problem, sources: Tensor, *, finished: bool = True) -> Verdict | None:
    """How plausible the sources of a problem are; None where a prior has no typical energies.

    Args:
        problem: Its evaluations are counted.
        sources: (batch, sources, channels, *size).
        finished: Whether the sources were put onto the mixture, so that what they leave of it
            counts.
    """
    found, shares = [], []
    # Typical energies are of the prior itself, not of one that is led away from another.
    for place, prior in enumerate(prior.base_prior for prior in problem.priors):
        typical = typical_energies(prior)
        if typical is None:
            return None
        # Larger signals than were measured are seen through tiles: the mean over these counts.
        scale = typical.values / math.prod(prior.shape)
        own = energy(prior, sources[:, place], typical.levels)
        problem.count(prior.cost * len(judged_levels(prior, typical.levels)), len(sources))
        found.append(own)
        shares.append([typical.share(scale * e) for e in own.tolist()])
    # The least of k independent shares is below p with probability 1 - (1 - p)^k.
    least = torch.tensor(shares, dtype=torch.float64).amin(dim=0)
    joint = 1 - (1 - least) ** len(shares)
    misfit = finished & (misfits(problem, sources) > 1)
    cut = saturated(problem)
    joint = torch.where(misfit | cut, joint.clamp_max(0.5 * LIKELY), joint)
    limited = problem.mixing.limited
    return Verdict(joint.float(), torch.stack(found, dim=1).cpu(), misfit, cut, limited)


def misfits(problem: Problem, sources: Tensor) -> Tensor:
    """What sources leave of the mixture, in units of what is too much: (batch,)."""
    left = metrics.rms(problem.mixing.residual(sources, problem.observation)).cpu()
    return left / (MET * problem.value_width + 2 * problem.mixing.noise)


def saturated(problem: Problem) -> Tensor:
    """Which observations look clipped: (batch,) of bool.

    Many places have the largest value exactly, it is the largest of one source, and several sources
    make much larger ones.
    """
    lows, highs = [p.low for p in problem.priors], [p.high for p in problem.priors]
    seen = problem.observation.flatten(1).cpu()
    none = torch.zeros(len(seen), dtype=torch.bool)
    mixing = problem.mixing
    if None in lows or None in highs or mixing.mask is not None or mixing.noise or mixing.limited:
        return none
    _, high = problem.mixing.output_range(min(lows), max(highs))  # type: ignore[type-var]
    if high is None:
        return none
    most, white = seen.amax(dim=1), max(h for h in highs if h is not None)
    ties = (seen == most[:, None]).sum(dim=1)
    at_white = (most - white).abs() <= MET * problem.value_width
    return (ties >= max(_TIES, _TIED * seen.shape[1])) & at_white & (most < _INNER * high)
