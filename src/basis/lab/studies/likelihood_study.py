"""How probable test signals and separated sources are, in bits per dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basis import metrics
from basis._check import value_scale
from basis.plots.charts import Table
from basis.priors.likelihood import Ladder
from basis.priors.prior import Prior
from basis.result import Result


def bits(
    prior: Prior, signals: Tensor, sigma: float, *, noisy: bool = True, seed: int = 0
) -> Tensor:
    """Bits per dimension of signals under p_sigma, (n,).

    Values of a prior with bounds stand for 8-bit steps, 255 over its range, within which they are
    spread out uniformly; without bounds the values are taken as they are and the answer is that of
    a density.

    Args:
        prior: One with a likelihood.
        signals: (n, *prior.shape).
        sigma: Noise level of the model; 0 asks a noiseless one.
        noisy: Whether to add noise of that level first, which is what the model is a density of.
        seed: Seed of what is added.
    """
    bounded = prior.low is not None and prior.high is not None
    step = value_scale(prior) / 255 if bounded else None
    generator = torch.Generator().manual_seed(seed)
    within = (torch.rand(signals.shape, generator=generator) - 0.5) * (step or 0.0)
    noise = sigma * torch.randn(signals.shape, generator=generator) if noisy else 0.0
    x = signals + (within + noise).to(signals)
    nats = -prior.log_prob(x, sigma) / signals[0].numel() - math.log(step or 1.0)
    return nats / math.log(2)


@dataclass(frozen=True)
class Likelihoods:
    """A row of the paper's table of sample likelihoods: mean bits per dimension, standard errors.

    Attributes:
        noiseless: Test signals under the noiseless model; None where the prior has none.
        noisy: Test signals under p_sigma, at the smallest noise level `sigma`.
        separated: Separated sources under the same.
    """

    prior: str
    sigma: float
    count: int
    noiseless: tuple[float, float] | None
    noisy: tuple[float, float]
    separated: tuple[float, float] | None


def likelihoods(
    prior: Prior, signals: Tensor, separated: Tensor | None = None, *, seed: int = 0
) -> Likelihoods:
    """How probable test signals and separated sources are under a prior with a likelihood.

    Args:
        prior: The prior.
        signals: Test signals, (n, *prior.shape).
        separated: Separated sources, (m, *prior.shape).
        seed: Seed of the noise.
    """
    prior.check_signals(signals)
    sigma = prior.sigma_min
    # A ladder has one model per noise level, and none without noise; nor has an energy or a flow.
    models = (prior, *(getattr(prior, name, None) for name in ("module", "model")))
    has_noiseless = all(
        getattr(model, "noiseless", True) and not isinstance(model, Ladder) for model in models
    )
    return Likelihoods(
        prior.name,
        sigma,
        len(signals),
        _mean(bits(prior, signals, 0.0, noisy=False, seed=seed)) if has_noiseless else None,
        _mean(bits(prior, signals, sigma, seed=seed)),
        None if separated is None else _mean(bits(prior, separated, sigma, seed=seed)),
    )


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and standard error."""
    values = values.double()
    spread = values.std().item() if len(values) > 1 else math.nan
    return values.mean().item(), spread / math.sqrt(len(values))


def likelihood_table(rows: Sequence[Likelihoods]) -> Table:
    """The table of sample likelihoods, in bits per dimension."""

    def cell(value: tuple[float, float] | None) -> str:
        return "" if value is None else f"{value[0]:.3f} ± {value[1]:.3f}"

    header = (
        "bits per dimension", "test images, noiseless model", "test images, p_σ",
        "separated sources, p_σ", "σ",
    )  # fmt: skip
    cells = [
        (r.prior, cell(r.noiseless), cell(r.noisy), cell(r.separated), f"{r.sigma:g}") for r in rows
    ]
    return Table(header, cells)


@dataclass(frozen=True)
class SeparationCost:
    """What separations with a prior cost and how good they are.

    Attributes:
        psnr: In dB over the mixtures.
        evaluations: Network evaluations per mixture.
        seconds_each: Seconds per mixture.
        weights: Numbers that have to be loaded for the prior.
    """

    prior: str
    psnr: metrics.Summary
    evaluations: int
    seconds_each: float
    weights: int


def separation_cost(prior: Prior, result: Result, truth: Tensor) -> SeparationCost:
    """Cost and quality of a separation, beside the true sources (batch, k, *prior.shape)."""
    return SeparationCost(
        prior.name,
        metrics.summarize(
            metrics.psnr(
                result.sources,
                truth,
                (prior.low, prior.high),
                peak=value_scale(prior),
                permute=True,
            )
        ),
        result.evaluations,
        result.seconds / len(truth),
        sum(p.numel() for p in prior.parameters()),
    )


def separation_cost_table(rows: Sequence[SeparationCost]) -> Table:
    """Costs of separations, a row per prior."""
    cells = [
        (
            r.prior,
            f"{r.psnr.mean:.2f} ± {r.psnr.stderr:.2f}",
            f"{r.evaluations:,}",
            f"{r.seconds_each:.2f}",
            f"{r.weights:,}",
        )
        for r in rows
    ]
    header = ("separation", "PSNR, dB", "evaluations each", "seconds each", "weights to load")
    return Table(header, cells)
