"""Is a prior sound for separation? The classic mistakes, found on a few hundred held-out images.

A denoiser that answers for the right pixels, the right noise and the right quantity has three marks: its
answers have the images' mean; its error is below an ideal Gaussian's; and no other reading of sigma makes it better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.priors import Prior
from basis.samplers import geometric

__all__ = ["Finding", "check_prior", "gaussian_errors", "verdict"]

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: its name, whether it is as it should be, and a sentence."""

    name: str
    sound: bool
    text: str


def check_prior(
    prior: Prior, images: Tensor, *, sigmas: Sequence[float] | None = None, seed: int = 0
) -> list[Finding]:
    """Looks for the mistakes that spoil separations.

    Args:
        prior: Any prior.
        images: Held-out images of its kind in [0, 1], (n, channels, height, width), a few hundred.
        sigmas: Noise levels to look at, ascending; spread over the prior's range by default.
    """
    if tuple(images.shape[1:]) != prior.shape:
        raise BasisError(
            f"the images are {tuple(images.shape[1:])}, the prior is for {prior.shape}: give images of its kind"
        )
    if len(images) < 8:
        raise BasisError(f"a check needs at least 8 images of the prior's kind, not {len(images)}")
    low, high = max(prior.sigma_min, 0.01), min(prior.sigma_max, 2.0)
    if sigmas is None:
        sigmas = geometric(low, high, 6)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(images.shape, generator=generator).to(images)
    with torch.no_grad():
        answers = {s: prior.denoise(images + s * noise, s) for s in sigmas}
    if not all(torch.isfinite(a).all() for a in answers.values()):
        bad = ", ".join(f"{s:.3g}" for s, a in answers.items() if not torch.isfinite(a).all())
        return [Finding("finite", False, f"it answers with NaN or infinity at sigma {bad}")]
    findings = [_quantity(images, noise, answers), _range(images, answers)]
    if all(f.sound for f in findings):
        findings.append(_scale(prior, images, noise, sigmas))
    findings.append(_curve(images, answers))
    if prior.has_likelihood:
        findings.append(_gradient(prior, images, noise, sigmas))
        findings += _inverse(prior, images, noise, sigmas)
    return findings


def verdict(findings: Sequence[Finding]) -> str:
    """The findings in one sentence."""
    wrong = [f for f in findings if not f.sound]
    if not wrong:
        return "sound: nothing here would spoil a separation"
    return "not sound: " + "; ".join(f.text for f in wrong)


def gaussian_errors(images: Tensor, sigmas: Sequence[float]) -> list[float]:
    """Error / sigma^2 of the ideal denoiser of a Gaussian with these images' mean and variance at every pixel.

    Pixels are taken as independent: a covariance of all pixels cannot be had from a few hundred images. It is the
    least that a trained prior must do better than.
    """
    variance = images.double().var(dim=0)
    return [(variance / (variance + s**2)).mean().item() for s in sigmas]


def _quantity(images: Tensor, noise: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Does it answer with the image, or with the noise, the score or a mixture of them?"""
    middle = sorted(answers)[len(answers) // 2]
    answer = answers[middle]
    to_image, to_noise = _correlation(answer, images), _correlation(answer, noise)
    if abs(to_noise) > abs(to_image):
        sign = "minus " if to_noise < 0 else ""
        return Finding(
            "quantity",
            False,
            f"it answers with {sign}the noise instead of the image (correlation {to_noise:.2f} with the "
            f"noise, {to_image:.2f} with the image at sigma {middle:.2g}): wrong prediction type",
        )
    if to_image < 0.5:
        return Finding(
            "quantity",
            False,
            f"its answer hardly resembles the image (correlation {to_image:.2f} at sigma {middle:.2g}): "
            "wrong prediction type, wrong time index or an untrained model",
        )
    return Finding("quantity", True, f"it answers with the image (correlation {to_image:.3f})")


def _correlation(a: Tensor, b: Tensor) -> float:
    a, b = (t.flatten().double() - t.double().mean() for t in (a, b))
    return ((a @ b) / (a.norm() * b.norm()).clamp_min(1e-12)).item()


def _range(images: Tensor, answers: dict[float, Tensor]) -> Finding:
    """A denoiser is unbiased: at every noise level its answers have the mean of the images."""
    mean = images.mean().item()
    means = {s: a.mean().item() for s, a in answers.items()}
    worst = max(means, key=lambda s: abs(means[s] - mean))
    if abs(means[worst] - mean) < 0.05:
        return Finding(
            "range", True, f"its answers have the images' mean to {abs(means[worst] - mean):.3f}"
        )
    return Finding(
        "range",
        False,
        f"at sigma {worst:.2g} its answers have mean {means[worst]:.2f} where the images have {mean:.2f}: "
        "another range of pixels, such as [-1, 1], is not converted",
    )


def _scale(prior: Prior, images: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Would it denoise better if it were told another sigma than the true one?"""
    middle = sigmas[len(sigmas) // 2]
    noisy = images + middle * noise
    errors = {}
    for factor in _FACTORS:
        told = min(max(factor * middle, prior.sigma_min), prior.sigma_max)
        if math.isclose(told, factor * middle):
            with torch.no_grad():
                errors[factor] = (prior.denoise(noisy, told) - images).square().mean().item()
    best = min(errors, key=lambda f: errors[f])
    if errors[1.0] < 1.02 * errors[best]:
        return Finding("sigma", True, "no other reading of sigma makes it better")
    return Finding(
        "sigma",
        False,
        f"told {best:g} times the true sigma its error falls from {errors[1.0]:.4f} to {errors[best]:.4f}: "
        f"its noise levels are off by about a factor of {best:g}",
    )


def _curve(images: Tensor, answers: dict[float, Tensor]) -> Finding:
    """Error / sigma^2 by noise level beside an ideal Gaussian's."""
    sigmas = sorted(answers)
    errors = [((answers[s] - images).square().mean() / s**2).item() for s in sigmas]
    ideal = gaussian_errors(images, sigmas)
    shown = ", ".join(
        f"{s:.2g}: {e:.3f} ({i:.3f})" for s, e, i in zip(sigmas, errors, ideal, strict=True)
    )
    # At the smallest level 8-bit steps and fp16 weights leave an error that no prior is to blame for.
    worse = [s for s, e, i in zip(sigmas[1:], errors[1:], ideal[1:], strict=True) if e > 1.05 * i]
    text = f"error / sigma^2 by sigma (a Gaussian's): {shown}"
    if not worse:
        return Finding("curve", True, text)
    levels = ", ".join(f"{s:.2g}" for s in worse)
    return Finding(
        "curve",
        False,
        f"it denoises worse than a Gaussian of independent pixels at sigma {levels}; {text}",
    )


def _gradient(prior: Prior, images: Tensor, noise: Tensor, sigmas: Sequence[float]) -> Finding:
    """Is the score the gradient of the log-density? Along one direction, by central differences."""
    sigma = sigmas[len(sigmas) // 2]
    x = images[:8] + sigma * noise[:8]
    direction = noise[8:16] if len(noise) >= 16 else noise[:8].flip(0)
    step = 0.01 * sigma
    with torch.no_grad():
        ahead, behind = (prior.log_prob(x + sign * step * direction, sigma) for sign in (1, -1))
        slope = (ahead - behind) / (2 * step)
        exact = (prior.score(x, sigma) * direction).flatten(1).sum(dim=1)
    off = ((slope - exact).norm() / exact.norm().clamp_min(1e-12)).item()
    text = f"score and log-density differ by {off:.1%} along a random direction"
    return Finding("gradient", off < 0.05, text)


def _inverse(prior: Prior, images: Tensor, noise: Tensor, sigmas: Sequence[float]) -> list[Finding]:
    """For flows: does decoding undo encoding, on noisy images and on noise alone?"""
    model: Any = getattr(prior, "module", None)
    if not (hasattr(model, "encode") and hasattr(model, "decode")):
        return []
    errors = {"images": 0.0, "noise alone": 0.0}
    for sigma in sigmas:
        for kind, x in (("images", images[:8] + sigma * noise[:8]), ("noise alone", noise[:8])):
            own = x.float()
            s = torch.full((len(own),), sigma)
            with torch.no_grad():
                off = (model.decode(model.encode(own, s), s) - own).abs().max().item()
            errors[kind] = max(errors[kind], off) if math.isfinite(off) else math.inf
    # Noise of size 1 is far from anything that a model of small noise meets in a separation: told, not judged.
    told = ", ".join(f"{off:.1e} on {kind}" for kind, off in errors.items())
    return [Finding("inverse", errors["images"] < 1e-3, f"decoding undoes encoding to {told}")]
