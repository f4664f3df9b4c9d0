"""Plausibility: does each separated source look like a signal that the prior knows?

It measures that, and not whether the split is right: wrong sources that look like such signals have
a high plausibility. The residual cannot tell, because any sources can be made to match the
observation. Energies can in part: correct sources have the energies of sources separated from
mixtures of held-out signals, incorrect ones usually have larger energies.
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
"""Noise levels of the energy in standard deviations of the prior; one evaluation each."""
MET = 1 / 255
"""The largest residual, as a fraction of the value range, of sources that match an observation."""
# An observation looks clipped if at least this number and this fraction of its values are equal to
# its largest value, which is less than this fraction of what the sources can reach.
_TIES, _TIED, _INNER = 8, 0.01, 0.95
_MISFIT = (
    "no sources in the prior's range add up to this observation; check its value range and alphas"
)
_CLIPPED = (
    "many values equal the largest one, as in a clipped sum; check alphas, and use "
    "mixing.clipped() (--mixing clipped) if the sum was clipped"
)
_UNLIKELY = (
    "the sources do not look like signals that the prior knows; check alphas and the number of "
    "sources, whether the picture is inverted{clipped} or of low contrast, more evaluations, and "
    "the prior"
)
_EXACT_SAMPLES = 256  # signals on which a prior that samples exactly is measured


@dataclass(frozen=True)
class Plausibility:
    """Whether the sources of a batch look like signals that the prior knows.

    Attributes:
        values: (batch,), 0 to 1: the fraction of sources separated from mixtures of the prior's own
            signals that are less probable than these.
        energies: (batch, sources), in nats up to a constant.
        misfit: (batch,) of bool: no sources in their range add up to this observation.
        clipped: (batch,) of bool: the observation looks clipped.
        limited: Whether the mixing accounts for clipping or rounding already.
    """

    values: Tensor
    energies: Tensor
    misfit: Tensor
    clipped: Tensor
    limited: bool = False

    def warnings(self) -> list[str]:
        """What to check for every item with unlikely sources; empty for the others."""
        found = []
        for value, misfit, clipped in zip(
            self.values.tolist(), self.misfit.tolist(), self.clipped.tolist(), strict=True
        ):
            unlikely = _UNLIKELY.format(clipped="" if self.limited else " or clipped")
            reason = _MISFIT if misfit else _CLIPPED if clipped else unlikely
            found.append(
                "" if value >= LIKELY else f"unlikely sources (plausibility {value:.2g}): {reason}"
            )
        return found


def energy(prior: Prior, x: Tensor, levels: Sequence[float] = LEVELS) -> Tensor:
    """The energy of each signal under a prior, in nats up to a constant: (batch,).

    All signals share the noise, so that differences are those of the signals.

    Args:
        prior: The prior.
        x: (batch, *prior.shape).
        levels: Noise levels in standard deviations of the prior.
    """
    sigmas = energy_sigmas(prior, levels)
    total = x.new_zeros(len(x), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for sigma, width in zip(sigmas, log_widths(sigmas), strict=True):
        noise = torch.randn(prior.shape, generator=generator).to(x)
        error = prior.denoise(x + sigma * noise, sigma) - x
        total += width / sigma**2 * error.flatten(1).double().square().sum(dim=1)
    return total


def energy_sigmas(prior: Prior, levels: Sequence[float] = LEVELS) -> list[float]:
    """Noise levels in the prior's units, limited to those that it was trained on."""
    return sorted({min(max(v * prior.std, prior.sigma_min), prior.sigma_max) for v in levels})


def typical_energies(prior: Prior) -> Energies | None:
    """The energies of a prior's card or those of its exact samples; None if it has neither.

    A prior that samples exactly is measured once, the first time it is needed.
    """
    if prior.energies is None and prior.exact_samples is not None:
        with torch.no_grad():
            signals = prior.exact_samples(_EXACT_SAMPLES, torch.Generator().manual_seed(0))
            prior.energies = energies_of(prior, signals, about={"origin": "its own samples"})
    return prior.energies


def energies_of(
    prior: Prior,
    signals: Tensor,
    separated: Tensor | None = None,
    *,
    about: dict[str, object] | None = None,
    batch_size: int = 64,
) -> Energies:
    """The distribution of the energies of signals, to be kept as `prior.energies`.

    Args:
        prior: The prior.
        signals: (n, *prior.shape), signals of the prior's kind that it was not trained on.
        separated: (n, *prior.shape), sources separated from mixtures of such signals.
        about: Additional entries for the card.
        batch_size: Signals evaluated together.
    """

    @torch.no_grad()
    def curve(signals: Tensor) -> tuple[float, ...]:
        parts = [
            energy(prior, part.to(prior.device or part.device))
            for part in signals.split(batch_size)
        ]
        return quantiles(torch.cat(parts).tolist())

    return Energies(
        levels=LEVELS,
        values=math.prod(prior.shape),
        images=curve(signals),
        separated=() if separated is None else curve(separated),
        about=about or {},
    )


def judge(problem: Problem, sources: Tensor, *, finished: bool = True) -> Plausibility | None:
    """The plausibility of the sources of a problem; None if a prior has no typical energies.

    Args:
        problem: Its evaluations are counted.
        sources: (batch, sources, channels, *size).
        finished: Whether the sources were projected onto the observation, so that their residual
            counts.
    """
    energies, fractions = [], []
    # Typical energies belong to the prior itself, without guidance.
    for index, prior in enumerate(prior.base_prior for prior in problem.priors):
        typical = typical_energies(prior)
        if typical is None:
            return None
        # Signals larger than those measured are tiled: their energy per value counts.
        scale = typical.values / math.prod(prior.shape)
        own = energy(prior, sources[:, index], typical.levels)
        problem.count(prior.evaluations * len(energy_sigmas(prior, typical.levels)), len(sources))
        energies.append(own)
        fractions.append([typical.share(scale * e) for e in own.tolist()])
    # The least of k independent uniform values is below p with probability 1 - (1 - p)^k.
    least = torch.tensor(fractions, dtype=torch.float64).amin(dim=0)
    joint = 1 - (1 - least) ** len(fractions)
    misfit = finished & (misfits(problem, sources) > 1)
    clipped = looks_clipped(problem)
    joint = torch.where(misfit | clipped, joint.clamp_max(0.5 * LIKELY), joint)
    stacked = torch.stack(energies, dim=1).cpu()
    return Plausibility(joint.float(), stacked, misfit, clipped, problem.mixing.limited)


def misfits(problem: Problem, sources: Tensor) -> Tensor:
    """The residual in units of the largest acceptable one: (batch,)."""
    residual = metrics.rms(problem.mixing.residual(sources, problem.observation)).cpu()
    return residual / (MET * problem.value_width + 2 * problem.mixing.noise)


def looks_clipped(problem: Problem) -> Tensor:
    """Which observations look clipped: (batch,) of bool.

    Many values equal the largest one, which is the largest value of one source although several
    sources can reach much larger ones.
    """
    lows, highs = [p.low for p in problem.priors], [p.high for p in problem.priors]
    values = problem.observation.flatten(1).cpu()
    none = torch.zeros(len(values), dtype=torch.bool)
    mixing = problem.mixing
    if None in lows or None in highs or mixing.mask is not None or mixing.noise or mixing.limited:
        return none
    _, reach = mixing.output_range((min(lows), max(highs)))  # type: ignore[type-var]
    if reach is None:
        return none
    largest, white = values.amax(dim=1), max(h for h in highs if h is not None)
    ties = (values == largest[:, None]).sum(dim=1)
    at_white = (largest - white).abs() <= MET * problem.value_width
    return (ties >= max(_TIES, _TIED * values.shape[1])) & at_white & (largest < _INNER * reach)
