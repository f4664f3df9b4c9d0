"""Checks whether a prior is suitable for separation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from basis._sample import sample
from basis._separate import separate
from basis.errors import BasisError
from basis.priors.card import Energies
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers.sampler import geometric
from basis.search.plan import Plan, plan_for
from basis.search.plausibility import energies_of
from basis.settings import Effort

_LEAST = 8  # signals that a distribution is told from at least


def measure_energies(
    prior: Prior,
    images: Tensor | None = None,
    *,
    pairs: int = 128,
    effort: Effort | str | int | Plan = "fast",
    samples: int = 64,
    seed: int = 0,
    about: dict[str, object] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Energies:
    """Measures the energies that are typical of a prior, and keeps them as `prior.energies`.

    From then on `separate` says how plausible its results are.

    Args:
        prior: Any prior.
        images: Signals of its kind that it has not seen, (n, *prior.shape), 8 or more. None takes
            the prior's own samples instead, 64 evaluations for each.
        pairs: Mixtures of two of the images that are separated, to measure what separated sources
            have; 0 for none.
        effort: Of these separations.
        samples: How many samples are drawn where there are no images.
        seed: Of the draws.
        about: What the card shall say beside counts and origin.
        progress: Called after every step.
    """
    told: dict[str, object] = {"origin": "held-out images"}
    if images is None:
        told["origin"] = "its own samples"
        images = sample(prior, samples, seed=seed, progress=progress)
    if len(images) < _LEAST or tuple(images.shape[1:]) != prior.shape:
        raise BasisError(
            f"energies are measured on {_LEAST} signals of shape {prior.shape} or more, not on "
            f"{tuple(images.shape)}"
        )
    separated = None
    if pairs:
        first = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        order = torch.cat([first.roll(shift) for shift in range(-(-2 * pairs // len(images)))])
        two = images[order[: 2 * pairs]].unflatten(0, (pairs, 2))
        plan = effort if isinstance(effort, Plan) else plan_for(effort)
        plan = replace(plan, verdict=False)
        found = separate(two.sum(dim=1), prior, effort=plan, seed=seed, progress=progress)
        separated = found.sources.flatten(0, 1)
        told |= {"pairs": pairs, "effort": effort if not isinstance(effort, Plan) else "a plan"}
    told |= {"images": len(images), "seed": seed, **(about or {})}
    prior.energies = energies_of(prior, images, separated, about=told)
    return prior.energies


_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_PICTURE_SPREAD = 0.3  # about the standard deviation of a pixel of pictures in [0, 1]


def value_scale(prior: Prior) -> float:
    """How wide the range of a prior's values is, to scale noise levels and tolerances by.

    It is high - low for a prior with bounds, so 1 for pictures in [0, 1]; a prior without bounds
    has the width that pictures of its standard deviation would have.
    """
    if prior.low is not None and prior.high is not None:
        return prior.high - prior.low
    return prior.std / _PICTURE_SPREAD


@dataclass(frozen=True)
class Finding:
    """The outcome of one test: its name, whether it passed, and a sentence."""

    name: str
    sound: bool
    text: str


def check_prior(
    prior: Prior, signals: Tensor, *, sigmas: Sequence[float] | None = None, seed: int = 0
) -> list[Finding]:
    """Tests a prior for the mistakes that spoil separations.

    Args:
        prior: Any prior.
        signals: Held-out signals of its kind and range, (n, *prior.shape), a few hundred.
        sigmas: Noise levels to test, ascending; spread over the prior's range by default.
        seed: Seed of the noise.
    """
    if tuple(signals.shape[1:]) != tuple(prior.shape):
        raise BasisError(
            f"the signals are {tuple(signals.shape[1:])}, the prior is for "
            f"{tuple(prior.shape)}: give images of its kind"
        )
    if len(signals) < 8:
        raise BasisError(f"a check needs at least 8 images of the prior's kind, not {len(signals)}")
    scale = value_scale(prior)
    if sigmas is None:
        low = max(prior.sigma_min, 0.01 * scale)
        sigmas = geometric(low, max(low, min(prior.sigma_max, 2.0 * scale)), 6)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(signals.shape, generator=generator).to(signals)
    with torch.no_grad():
        answers = {s: prior.denoise(signals + s * noise, s) for s in sigmas}
    if not all(torch.isfinite(a).all() for a in answers.values()):
        bad = ", ".join(f"{s:.3g}" for s, a in answers.items() if not torch.isfinite(a).all())
        return [Finding("finite", False, f"it answers with NaN or infinity at sigma {bad}")]
    findings = [_quantity(signals, noise, answers), _range(signals, answers, scale)]
    if all(f.sound for f in findings):
        findings.append(_scale(prior, signals, noise, sigmas))
    findings.append(_curve(signals, answers))
    if prior.has_likelihood:
        findings.append(_gradient(prior, signals, noise, sigmas))
        findings += _inverse(prior, signals, noise, sigmas, scale)
    return findings


def verdict(findings: Sequence[Finding]) -> str:
    """The findings in one sentence."""
    wrong = [f for f in findings if not f.sound]
    if not wrong:
        return "sound: nothing here would spoil a separation"
    return "not sound: " + "; ".join(f.text for f in wrong)


def gaussian_errors(signals: Tensor, sigmas: Sequence[float]) -> list[float]:
    """Error / sigma^2 of the ideal denoiser of a Gaussian with the mean and variance of each value.

    Values are taken as independent: a covariance of all of them cannot be had from a few hundred
    signals. It is the least that a trained prior must do better than.

    Args:
        signals: (n, channels, *size), of at least two signals.
        sigmas: Noise levels; one error is returned for each.
    """
    variance = signals.double().var(dim=0)
    return [(variance / (variance + s**2)).mean().item() for s in sigmas]


def _quantity(signals: Tensor, noise: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Does it answer with the clean signal, or with the noise, the score or a mixture of them?"""
    middle = sorted(answers)[len(answers) // 2]
    answer = answers[middle]
    to_clean, to_noise = _correlation(answer, signals), _correlation(answer, noise)
    if abs(to_noise) > abs(to_clean):
        sign = "minus " if to_noise < 0 else ""
        return Finding(
            "quantity",
            False,
            f"it answers with {sign}the noise instead of the clean signal (correlation "
            f"{to_noise:.2f} with the noise, {to_clean:.2f} with the signal at sigma "
            f"{middle:.2g}): wrong prediction type",
        )
    if to_clean < 0.5:
        return Finding(
            "quantity",
            False,
            f"its answer hardly resembles the clean signal (correlation {to_clean:.2f} at sigma "
            f"{middle:.2g}): wrong prediction type, wrong time index or an untrained model",
        )
    return Finding(
        "quantity", True, f"it answers with the clean signal (correlation {to_clean:.3f})"
    )


def _correlation(a: Tensor, b: Tensor) -> float:
    a, b = (t.flatten().double() - t.double().mean() for t in (a, b))
    return ((a @ b) / (a.norm() * b.norm()).clamp_min(1e-12)).item()


def _range(signals: Tensor, answers: dict[float, Tensor], scale: float) -> Finding:
    """A denoiser is unbiased: at every noise level its answers have the mean of the signals."""
    mean = signals.mean().item()
    means = {s: a.mean().item() for s, a in answers.items()}
    worst = max(means, key=lambda s: abs(means[s] - mean))
    off = abs(means[worst] - mean)
    if off < 0.05 * scale:
        return Finding("range", True, f"its answers have the signals' mean to {off:.3f}")
    return Finding(
        "range",
        False,
        f"at sigma {worst:.2g} its answers have mean {means[worst]:.2f} where the signals have "
        f"{mean:.2f}: another range of values, such as [-1, 1] for [0, 1], is not converted",
    )


def _scale(prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Would it denoise better if it were given another sigma than the true one?"""
    middle = sigmas[len(sigmas) // 2]
    noisy = signals + middle * noise
    errors = {}
    for factor in _FACTORS:
        given = factor * middle
        if prior.sigma_min <= given <= prior.sigma_max:
            with torch.no_grad():
                errors[factor] = (prior.denoise(noisy, given) - signals).square().mean().item()
    best = min(errors, key=lambda f: errors[f])
    if errors[1.0] < 1.02 * errors[best]:
        return Finding("sigma", True, "no other reading of sigma makes it better")
    return Finding(
        "sigma",
        False,
        f"given {best:g} times the true sigma its error falls from {errors[1.0]:.4g} to "
        f"{errors[best]:.4g}: its noise levels are off by about a factor of {best:g}",
    )


def _curve(signals: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Error / sigma^2 by noise level beside an ideal Gaussian's."""
    sigmas = sorted(answers)
    errors = [((answers[s] - signals).square().mean() / s**2).item() for s in sigmas]
    ideal = gaussian_errors(signals, sigmas)
    shown = ", ".join(
        f"{s:.2g}: {e:.3f} ({i:.3f})" for s, e, i in zip(sigmas, errors, ideal, strict=True)
    )
    # At the smallest level 8-bit steps and fp16 weights leave an error that is not the prior's.
    worse = [s for s, e, i in zip(sigmas[1:], errors[1:], ideal[1:], strict=True) if e > 1.05 * i]
    text = f"error / sigma^2 by sigma (a Gaussian's): {shown}"
    if not worse:
        return Finding("curve", True, text)
    levels = ", ".join(f"{s:.2g}" for s in worse)
    return Finding(
        "curve",
        False,
        f"it denoises worse than a Gaussian of independent values at sigma {levels}; {text}",
    )


def _gradient(prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Is the score the gradient of the log-density? Along one direction, by central differences."""
    sigma = sigmas[len(sigmas) // 2]
    x = signals[:8] + sigma * noise[:8]
    direction = noise[8:16] if len(noise) >= 16 else noise[:8].flip(0)
    step = 0.01 * sigma
    with torch.no_grad():
        ahead, behind = (prior.log_prob(x + sign * step * direction, sigma) for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        exact = (prior.score(x, sigma) * direction).flatten(1).sum(dim=1)
    off = ((slope - exact).norm() / exact.norm().clamp_min(1e-12)).item()
    text = f"score and log-density differ by {off:.1%} along a random direction"
    return Finding("gradient", off < 0.05, text)


def _inverse(
    prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float], scale: float
) -> list[Finding]:
    """For flows: does decoding undo encoding, on noisy signals and on noise alone?"""
    model: Any = getattr(prior, "module", None)
    if not (hasattr(model, "encode") and hasattr(model, "decode")):
        return []
    errors = {"signals": 0.0, "noise alone": 0.0}
    for sigma in sigmas:
        noisy = signals[:8] + sigma * noise[:8]
        for kind, x in (("signals", noisy), ("noise alone", scale * noise[:8])):
            own = x.float()
            s = torch.full((len(own),), sigma, device=own.device)
            with torch.no_grad():
                off = (model.decode(model.encode(own, s), s) - own).abs().max().item()
            errors[kind] = max(errors[kind], off) if math.isfinite(off) else math.inf
    # Noise as large as the signals is far from anything that a model of small noise meets in a
    # separation: its error is shown and decides nothing.
    shown = ", ".join(f"{off:.1e} on {kind}" for kind, off in errors.items())
    passed = errors["signals"] < 1e-3 * scale
    return [Finding("inverse", passed, f"decoding undoes encoding to {shown}")]
