"""Checks whether a prior is suitable for separation."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from basis._inputs import PriorLike, load_priors
from basis._sample import sample
from basis._separate import separate
from basis.errors import BasisError
from basis.priors.card import Energies
from basis.priors.prior import Prior
from basis.progress import Callback, with_bar
from basis.samplers.sampler import geometric
from basis.search.plan import Plan, plan_for
from basis.search.plausibility import energies_of
from basis.signals.datasets import load_images
from basis.signals.observation import Source, as_observation

_LEAST = 8  # the smallest number of signals to measure a distribution on
_SAMPLES: dict[tuple[int, ...], str] = {(1, 28, 28): "sample", (3, 32, 32): "sample-photos"}


def measure_energies(
    prior: Prior,
    signals: Source | None = None,
    *,
    pairs: int = 128,
    method: str | int | Plan = "fast",
    samples: int = 64,
    seed: int = 0,
    about: dict[str, object] | None = None,
    progress: bool | Callback | None = None,
) -> Energies:
    """Measures the typical energies of a prior and keeps them as `prior.energies`.

    From then on `separate` returns the plausibility of its results.

    Args:
        prior: Any prior.
        signals: Signals that it was not trained on, (n, *prior.shape), at least 8: an array or
            tensor as `separate` takes them. None uses samples of the prior, at 64 evaluations each.
        pairs: Mixtures of two signals to separate, to measure the energies of separated sources; 0
            for none.
        method: The method of these separations.
        samples: The number of samples if there are no signals.
        seed: The seed of all random numbers.
        about: Additional entries for the card.
        progress: As for `separate`.
    """
    entries: dict[str, object] = {"origin": "held-out images"}
    if signals is None:
        entries["origin"] = "its own samples"
        signals = sample(prior, samples, seed=seed, progress=progress)
    else:
        signals = as_observation(signals, prior.shape, prior.value_range).values
    if len(signals) < _LEAST or tuple(signals.shape[1:]) != prior.shape:
        raise BasisError(
            f"energies are measured on at least {_LEAST} signals of shape {prior.shape}, not on "
            f"{tuple(signals.shape)}"
        )
    separated = None
    if pairs:
        first = torch.randperm(len(signals), generator=torch.Generator().manual_seed(seed))
        order = torch.cat([first.roll(shift) for shift in range(-(-2 * pairs // len(signals)))])
        two = signals[order[: 2 * pairs]].unflatten(0, (pairs, 2))
        plan = method if isinstance(method, Plan) else plan_for(method)
        plan = replace(plan, judge=False)
        result = separate(two.sum(dim=1), prior, method=plan, seed=seed, progress=progress)
        separated = result.sources.flatten(0, 1)
        entries |= {"pairs": pairs, "method": "a plan" if isinstance(method, Plan) else method}
    entries |= {"images": len(signals), "seed": seed, **(about or {})}
    prior.energies = energies_of(prior, signals, separated, about=entries)
    return prior.energies


_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_PICTURE_STD = 0.3  # about the standard deviation of a pixel of pictures in [0, 1]


def value_scale(prior: Prior) -> float:
    """The width of a prior's value range, by which noise levels and tolerances are scaled.

    A prior without bounds has the width that pictures of its standard deviation would have.
    """
    if prior.low is not None and prior.high is not None:
        return prior.high - prior.low
    return prior.std / _PICTURE_STD


@dataclass(frozen=True)
class Finding:
    """The outcome of one test: its name, whether it passed, and a sentence."""

    name: str
    passed: bool
    text: str


@dataclass(frozen=True)
class Report:
    """The outcome of all tests of a prior."""

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return all(f.passed for f in self.findings)

    def __str__(self) -> str:
        lines = [f"{'ok    ' if f.passed else 'FAILED'} {f.name:9} {f.text}" for f in self.findings]
        failed = [f.name for f in self.findings if not f.passed]
        end = "suitable for separation" if not failed else f"not suitable: {', '.join(failed)}"
        return "\n".join([*lines, end])


def check(
    prior: PriorLike,
    data: Any = None,
    *,
    count: int = 256,
    size: int | None = None,
    sigmas: Sequence[float] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    root: str | None = None,
) -> Report:
    """Tests a prior for the mistakes that spoil separations.

    Args:
        prior: A prior, its name or its folder.
        data: Signals that it was not trained on: an array or tensor, (n, *prior.shape), as
            `separate` takes them, or a data set by name or folder. By
            default the images of the package, if they have its shape.
        count: How many signals to use.
        size: The size to which pictures of a folder are cropped and resized.
        sigmas: Noise levels to test, ascending; by default 6 over the prior's range.
        seed: The seed of the noise.
        device: Where to compute, as for `separate`.
        root: The data folder.
    """
    prior = load_priors(prior, device)[0]
    if data is None and prior.shape not in _SAMPLES:
        raise BasisError(
            f"the package has no data of shape {prior.shape}: give data, signals that the prior "
            "was not trained on"
        )
    if data is None or isinstance(data, str | os.PathLike):
        named = _SAMPLES[prior.shape] if data is None else os.fspath(data)
        signals = load_images(named, "test", root=root, size=size).floats(slice(count))
    else:
        signals = as_observation(data, prior.shape, prior.value_range).values[:count]
    return Report(tuple(check_prior(prior, signals.to(prior.device or "cpu"), sigmas, seed)))


def check_prior(
    prior: Prior, signals: Tensor, sigmas: Sequence[float] | None = None, seed: int = 0
) -> list[Finding]:
    """The findings of all tests on signals, (n, *prior.shape)."""
    if tuple(signals.shape[1:]) != tuple(prior.shape):
        raise BasisError(
            f"the signals have shape {tuple(signals.shape[1:])}, but prior {prior.name!r} needs "
            f"{tuple(prior.shape)}"
        )
    if len(signals) < 8:
        raise BasisError(f"a check needs at least 8 signals, not {len(signals)}")
    scale = value_scale(prior)
    if sigmas is None:
        low = max(prior.sigma_min, 0.01 * scale)
        sigmas = geometric(low, max(low, min(prior.sigma_max, 2.0 * scale)), 6)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(signals.shape, generator=generator).to(signals)
    try:
        with torch.no_grad():
            answers = {
                s: prior.denoise(signals + s * noise, s) for s in with_bar(sigmas, "testing")
            }
    except BasisError as error:  # of a user's function
        return [Finding("function", False, str(error))]
    if not all(torch.isfinite(a).all() for a in answers.values()):
        bad = ", ".join(f"{s:.3g}" for s, a in answers.items() if not torch.isfinite(a).all())
        return [Finding("finite", False, f"it returns NaN or infinity at sigma {bad}")]
    findings = [_quantity(signals, noise, answers), _range(signals, answers, scale)]
    if all(f.passed for f in findings):
        findings.append(_scale(prior, signals, noise, sigmas))
    findings.append(_curve(signals, answers))
    if prior.has_likelihood:
        findings.append(_gradient(prior, signals, noise, sigmas))
        findings += _inverse(prior, signals, noise, sigmas, scale)
    return findings


def gaussian_errors(signals: Tensor, sigmas: Sequence[float]) -> list[float]:
    """Error / sigma^2 of the ideal denoiser of a Gaussian with the mean and variance of each value.

    Values are taken to be independent, because a few hundred signals do not determine their
    covariance. A trained prior must do better.

    Args:
        signals: (n, channels, *size), of at least two signals.
        sigmas: Noise levels; one error is returned for each.
    """
    variance = signals.double().var(dim=0)
    return [(variance / (variance + s**2)).mean().item() for s in sigmas]


def _quantity(signals: Tensor, noise: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Whether it returns the clean signal, and not the noise or the score."""
    middle = sorted(answers)[len(answers) // 2]
    answer = answers[middle]
    to_clean, to_noise = _correlation(answer, signals), _correlation(answer, noise)
    if abs(to_noise) > abs(to_clean):
        sign = "minus " if to_noise < 0 else ""
        return Finding(
            "quantity",
            False,
            f"it returns {sign}the noise instead of the clean signal (correlation "
            f"{to_noise:.2f} with the noise, {to_clean:.2f} with the signal at sigma "
            f"{middle:.2g}): wrong prediction type",
        )
    if to_clean < 0.5:
        return Finding(
            "quantity",
            False,
            f"its output hardly resembles the clean signal (correlation {to_clean:.2f} at sigma "
            f"{middle:.2g}): wrong prediction type, wrong time index or an untrained model",
        )
    return Finding("quantity", True, f"it returns the clean signal (correlation {to_clean:.3f})")


def _correlation(a: Tensor, b: Tensor) -> float:
    a, b = (t.flatten().double() - t.double().mean() for t in (a, b))
    return ((a @ b) / (a.norm() * b.norm()).clamp_min(1e-12)).item()


def _range(signals: Tensor, answers: dict[float, Tensor], scale: float) -> Finding:
    """Whether it is unbiased: its output has the mean of the signals at every noise level."""
    mean = signals.mean().item()
    means = {s: a.mean().item() for s, a in answers.items()}
    worst = max(means, key=lambda s: abs(means[s] - mean))
    off = abs(means[worst] - mean)
    if off < 0.05 * scale:
        return Finding("range", True, f"its output has the mean of the signals to {off:.3f}")
    return Finding(
        "range",
        False,
        f"at sigma {worst:.2g} its output has mean {means[worst]:.2f}, the signals {mean:.2f}: the "
        "value range of the model, such as [-1, 1], is not converted",
    )


def _scale(prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Whether it denoises best if it is given the true sigma."""
    middle = sigmas[len(sigmas) // 2]
    noisy = signals + middle * noise
    errors = {}
    for factor in with_bar(_FACTORS, "testing the noise scale"):
        given = factor * middle
        if prior.sigma_min <= given <= prior.sigma_max:
            with torch.no_grad():
                errors[factor] = (prior.denoise(noisy, given) - signals).square().mean().item()
    best = min(errors, key=lambda f: errors[f])
    if errors[1.0] < 1.02 * errors[best]:
        return Finding("sigma", True, "it denoises best with the true sigma")
    return Finding(
        "sigma",
        False,
        f"with {best:g} times the true sigma its error falls from {errors[1.0]:.4g} to "
        f"{errors[best]:.4g}: its noise levels are off by about a factor of {best:g}",
    )


def _curve(signals: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Error / sigma^2 by noise level, compared with an ideal Gaussian's."""
    sigmas = sorted(answers)
    errors = [((answers[s] - signals).square().mean() / s**2).item() for s in sigmas]
    ideal = gaussian_errors(signals, sigmas)
    shown = ", ".join(
        f"{s:.2g}: {e:.3f} ({i:.3f})" for s, e, i in zip(sigmas, errors, ideal, strict=True)
    )
    # At the smallest level 8-bit pixels and fp16 weights contribute to the error.
    worse = [s for s, e, i in zip(sigmas[1:], errors[1:], ideal[1:], strict=True) if e > 1.05 * i]
    text = f"error / sigma^2 by sigma (a Gaussian's): {shown}"
    if not worse:
        return Finding("curve", True, text)
    levels = ", ".join(f"{s:.2g}" for s in worse)
    return Finding(
        "curve",
        False,
        f"it denoises worse than a Gaussian with independent values at sigma {levels}; {text}",
    )


def _gradient(prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Whether the score is the gradient of log_prob along a random direction."""
    sigma = sigmas[len(sigmas) // 2]
    x = signals[:8] + sigma * noise[:8]
    direction = noise[8:16] if len(noise) >= 16 else noise[:8].flip(0)
    step = 0.01 * sigma
    with torch.no_grad():
        ahead, behind = (prior.log_prob(x + sign * step * direction, sigma) for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        exact = (prior.score(x, sigma) * direction).flatten(1).sum(dim=1)
    off = ((slope - exact).norm() / exact.norm().clamp_min(1e-12)).item()
    text = f"score and gradient of log_prob differ by {off:.1%} along a random direction"
    return Finding("gradient", off < 0.05, text)


def _inverse(
    prior: Prior, signals: Tensor, noise: Tensor, sigmas: Sequence[float], scale: float
) -> list[Finding]:
    """For flows: whether decoding inverts encoding, on noisy signals and on noise alone."""
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
    # A separation never gives noise of this size to a model of small noise: only reported.
    shown = ", ".join(f"{off:.1e} on {kind}" for kind, off in errors.items())
    passed = errors["signals"] < 1e-3 * scale
    return [Finding("inverse", passed, f"decoding inverts encoding up to {shown}")]
