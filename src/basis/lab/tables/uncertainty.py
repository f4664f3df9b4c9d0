"""Calibration of intervals, plausibility, and estimated alphas and numbers of sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._mix import draw_pairs
from basis._sample import sample
from basis.errors import BasisError
from basis.lab.context import Context, MissingRequirement, separate_with
from basis.lab.report import Section
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.plots.charts import Table
from basis.priors.card import LIKELY
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.result import Result
from basis.samplers import Gibbs
from basis.search.ranking import align
from basis.signals.datasets import load_images

LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95)
"""Nominal levels of the intervals that are measured."""
_SIDE = 6  # of the textures of the exact posteriors


@dataclass(frozen=True)
class Calibration:
    """How well posterior samples predict their errors.

    Attributes:
        name: What was measured.
        mixtures, samples: Mixtures, and samples of each.
        covered: Fraction of the true values in the intervals of `LEVELS`.
        error, predicted: Root mean square of the error of the mean, and of the predicted error.
    """

    name: str
    mixtures: int
    samples: int
    covered: tuple[float, ...]
    error: float
    predicted: float


def calibration_of(
    name: str, truth: Tensor, result: Result, *, at_least: float = 0.0, tolerance: float = 0.0
) -> Calibration:
    """Compares a result's samples with the true sources.

    With an exact prior the truth is a posterior sample like any other, so that an interval of 90 %
    covers it in 90 % of the cases if the sampler is right. With trained priors the coverage shows
    how far sampler and prior together can be trusted.

    Args:
        truth: (batch, k, channels, *size); exchangeable sources are put in the result's order.
        result: With several samples.
        at_least: Values with a smaller standard deviation are not counted.
        tolerance: Widens the intervals on both sides, for values that were rounded.
    """
    truth = align(truth, result.sources, result.exchangeable)
    mean, std = result.mean, result.std
    assert result.samples is not None and mean is not None and std is not None
    # The mean of n samples has the error of the posterior and its own random error.
    predicted = std * math.sqrt(1 + 1 / result.samples.shape[1])
    counted = std >= at_least
    covered = []
    for level in LEVELS:
        low, high = result.interval(level)
        inside = (truth >= low - tolerance) & (truth <= high + tolerance)
        covered.append(inside[counted].double().mean().item())
    off, wide = (truth - mean)[counted].double(), predicted[counted].double()
    samples = result.samples.shape[1]
    return Calibration(name, len(truth), samples, tuple(covered), _rms(off), _rms(wide))


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def exact_calibrations(
    count: int, samples: int, *, steps: int = 300, seed: int = 0
) -> list[Calibration]:
    """The calibration of `gibbs` with exact priors and true sources drawn from them.

    Gaussian textures, a smooth and a rough one: one prior per source, exact and noisy mixtures; and
    sums of two of three patterns under one prior.

    Args:
        count: Mixtures of each kind.
        samples: Posterior samples of each.
        steps: Of every sample.
    """
    generator = torch.Generator().manual_seed(seed)
    textures = [_texture(2.0), _texture(0.6)]
    patterns = torch.rand(3, 1, _SIDE, _SIDE, dtype=torch.float64, generator=generator).round()
    own = GaussianMixture(patterns, torch.full((3,), 0.02, dtype=torch.float64))
    kinds: list[tuple[str, list[GaussianMixture], Mixing]] = [
        ("two textures", textures, mixings.mixture((1.0, 1.0))),
        ("two textures, noise 0.3", textures, mixings.mixture((1.0, 1.0)).replace(noise=0.3)),
        (
            "two patterns of one prior, noise 0.1",
            [own, own],
            mixings.mixture((1.0, 0.8)).replace(noise=0.1),
        ),
    ]
    rows = []
    for name, priors, mixing in kinds:
        truth = torch.stack([p.exact_samples(count, generator) for p in priors], dim=1)
        noise = torch.randn(count, *priors[0].shape, dtype=torch.float64, generator=generator)
        m = mixing(truth) + mixing.noise * noise
        method = Gibbs(steps=steps)
        result = separate_with(m, priors, mixing, method=method, samples=samples, seed=seed)
        rows.append(calibration_of(name, truth, result))
    return rows


def _texture(length: float) -> GaussianMixture:
    """A Gaussian texture with this correlation length."""
    points = torch.cartesian_prod(*[torch.arange(_SIDE, dtype=torch.float64)] * 2)
    covariance = (-torch.cdist(points, points).square() / (2 * length**2)).exp()
    covariance = covariance + 0.05 * torch.eye(_SIDE**2, dtype=torch.float64)
    return GaussianMixture(torch.zeros(1, 1, _SIDE, _SIDE, dtype=torch.float64), covariance[None])


def calibration(ctx: Context, section: Section) -> None:
    """Coverage of posterior intervals, with exact posteriors and on test mixtures."""
    priors = ctx.need_chosen("mnist")
    samples = 4 if ctx.miniature else 20
    method = _method(ctx, "gibbs")
    exact_steps = 5 if ctx.miniature else 300
    exact = 4 if ctx.miniature else 48
    rows = exact_calibrations(exact, samples, steps=exact_steps, seed=ctx.seed)
    truth = _checked_sources(ctx, priors, ctx.count(16))
    mixing = mixings.mixture((1.0, 1.0))
    for prior in priors:
        settings = {"method": method, "samples": samples}
        result = _run(ctx, section, prior, mixing(truth), mixing, settings)
        name = f"{prior.name}, {method if isinstance(method, str | int) else method.name}"
        half = 0.5 / 255  # images are rounded to 8 bits
        rows.append(calibration_of(f"{name}, all values", truth, result, tolerance=half))
        if result.std is not None and result.std.max() >= 0.02:
            name = f"{name}, values with a std of 0.02 or more"
            rows.append(calibration_of(name, truth, result, at_least=0.02, tolerance=half))
    header = ("", "mixtures", "samples", *(f"{x:.0%}" for x in LEVELS), "error", "predicted")
    section.tables.append(
        Table(
            header,
            [
                (
                    r.name,
                    str(r.mixtures),
                    str(r.samples),
                    *(f"{100 * share:.1f} %" for share in r.covered),
                    f"{r.error:.3g}",
                    f"{r.predicted:.3g}",
                )
                for r in rows
            ],
        )
    )
    section.text.append(
        "Fraction of the true values inside intervals of a nominal level, and the error of the "
        "posterior mean with what the samples predict for it (root mean squares). The first rows "
        "have exact priors."
    )


@dataclass(frozen=True)
class Case:
    """Mixtures of one kind, (count, channels, *size), and the alphas that the user passes."""

    name: str
    observation: Tensor
    alphas: tuple[float, ...]
    right: bool = False


def plausibility_cases(
    right: Tensor, wrong: Tensor, three: Tensor, other: Tensor, foreign: Tensor, *, seed: int = 0
) -> list[Case]:
    """Right mixtures of two sources in [0, 1], and eight kinds of wrong ones.

    Args:
        right: Sources of the right mixtures, (n, 2, channels, *size).
        wrong: Sources of the wrong ones, (count, 2, ...).
        three: Mixtures of three, (count, 3, ...).
        other: Images of another kind, (2 count, ...).
        foreign: Samples of another prior, (2 count, ...).
        seed: Of wrong alphas and noise.
    """
    count = len(wrong)
    if min(len(three), len(other) // 2, len(foreign) // 2) < count:
        raise BasisError(f"every kind needs the sources of {count} mixtures")
    g = torch.Generator().manual_seed(seed)
    off = 0.2 + 0.2 * torch.rand(count, generator=g)
    unequal = torch.einsum("bk,bk...->b...", torch.stack([0.5 + off, 0.5 - off], dim=1), wrong)
    plain, half = wrong.sum(dim=1), count // 2
    one = torch.cat([three[:half].sum(dim=1), wrong[half:, 0]])
    shifted = torch.cat([plain[:half] + 0.2, 2 * plain[half:] - 2])
    both, equal = (1.0, 1.0), (0.5, 0.5)

    def pairs(images: Tensor) -> Tensor:
        return images[: 2 * count].unflatten(0, (count, 2)).sum(dim=1)

    return [
        Case("right", right.sum(dim=1), both, right=True),
        Case("alphas wrong by 0.2 to 0.4", unequal, equal),
        Case("inverted", 1 - plain / 2, equal),
        Case("clipped at 1", plain.clamp(max=1), both),
        Case("noise", 2 * torch.rand(plain.shape, generator=g), both),
        Case("other images", pairs(other), both),
        Case("three sources, or one, instead of two", one, both),
        Case("shifted by 0.2, or to [-1, 1]", shifted, both),
        Case("samples of another prior", pairs(foreign), both),
    ]


def plausibility(ctx: Context, section: Section) -> None:
    """How many right and wrong mixtures are reported as implausible."""
    prior = _prior_with_energies(ctx)
    photo_prior = ctx.need("cifar10")
    images = load_images(ctx.data, "test", root=ctx.root)
    count = ctx.count(32)
    try:
        photos = load_images(ctx.photos, "test", root=ctx.root).floats(slice(2 * count))
    except BasisError as error:
        raise MissingRequirement(f"no data: {error}") from error
    steps = 2 if ctx.miniature else 12
    foreign = sample(photo_prior, 2 * count, steps=steps, seed=ctx.seed)
    cases = plausibility_cases(
        _checked_sources(ctx, [prior], ctx.count(512)),
        draw_pairs(images, count, seed=ctx.seed + 1).sources,
        draw_pairs(images, count, k=3, seed=ctx.seed + 2).sources,
        _as_shape(photos, prior),
        _as_shape(foreign, prior),
        seed=ctx.seed,
    )
    rows, wrong, reported = [], 0, 0
    for case in cases:
        mixing = mixings.mixture(case.alphas)
        settings = {"method": _method(ctx, "fast")}
        result = _run(ctx, section, prior, case.observation, mixing, settings)
        assert result.plausibility is not None
        flagged = int((result.plausibility < LIKELY).sum())
        total = len(case.observation)
        rows.append((case.name, f"{total}", f"{100 * flagged / total:.1f} %"))
        if not case.right:
            wrong, reported = wrong + total, reported + flagged
    rows.append(("all wrong kinds", f"{wrong}", f"{100 * reported / wrong:.1f} %"))
    section.tables.append(Table(("mixtures", "count", "reported as implausible"), rows))


def _as_shape(images: Tensor, prior: Prior) -> Tensor:
    """The centers of images in the shape of a prior; colors become their mean where needed."""
    channels, *size = prior.shape
    if len(size) != 2 or max(size) > 32:
        raise MissingRequirement(
            f"photos of 32x32 cannot be cropped to the shape {tuple(prior.shape)} of prior "
            f"{prior.name!r}"
        )
    if images.shape[1] != channels:
        images = images.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    for axis, side in zip((2, 3), size, strict=True):
        images = images.narrow(axis, (images.shape[axis] - side) // 2, side)
    return images


def random_alphas(count: int, *, seed: int = 0) -> Tensor:
    """Alphas of pairs, (count, 2): one uniform in 0.25 to 0.75, both with sum 1."""
    one = 0.25 + 0.5 * torch.rand(count, generator=torch.Generator().manual_seed(seed))
    return torch.stack([one, 1 - one], dim=1).double()


def alphas(ctx: Context, section: Section) -> None:
    """Unknown mixing coefficients of pairs, estimated with the sources."""
    (prior,) = ctx.need_chosen("mnist")[:1]
    count = ctx.count(128)
    truth = _checked_sources(ctx, [prior], count)
    mixing = PerItemMixing(random_alphas(count, seed=ctx.seed))
    settings = {"method": _method(ctx, "fast")}
    m = mixing(truth)
    unknown = _run(ctx, section, prior, m, None, settings | {"alphas": "unknown", "sources": 2})
    known = _run(ctx, section, prior, m, mixing, settings)
    assert unknown.alphas is not None
    found, true = unknown.alphas.sort(dim=1).values, mixing.alphas.sort(dim=1).values
    off = (found - true).abs().amax(dim=1)
    psnr = [
        metrics.summarize(metrics.psnr(r.sources, truth, permute=True)) for r in (unknown, known)
    ]
    rows = [
        ("median error of alpha", f"{off.median().item():.4f}"),
        ("90 % quantile of the error", f"{off.quantile(0.9).item():.4f}"),
        *(
            (f"PSNR with alphas {name} (median), dB", f"{s.mean:.2f} ({s.median:.2f})")
            for name, s in zip(("estimated", "known"), psnr, strict=True)
        ),
        *(
            (
                f"evaluations with alphas {name}",
                f"{r.evaluations:,}",
            )
            for name, r in (("estimated", unknown), ("known", known))
        ),
    ]
    section.tables.append(Table((f"{count} pairs", ""), rows))
    section.text.append(
        "One alpha of each pair is uniform in 0.25 to 0.75, their sum is 1; the error of a pair is "
        "the larger of its two."
    )


def counts(ctx: Context, section: Section) -> None:
    """Unknown numbers of sources: the true number against those found."""
    prior = _prior_with_energies(ctx)
    images = load_images(ctx.data, "test", root=ctx.root)
    number = ctx.count(32)
    rows = []
    for k in (1, 2, 3):
        m = draw_pairs(images, number, k=k, seed=ctx.seed).sources.sum(dim=1)
        settings = {"method": _method(ctx, "fast"), "sources": "unknown"}
        result = _run(ctx, section, prior, m, None, settings)
        assert result.counts is not None
        shares = [f"{(result.counts == j).double().mean().item():.0%}" for j in range(1, 5)]
        rows.append((str(k), str(number), *shares))
    section.tables.append(Table(("sources", "mixtures", "found 1", "2", "3", "4"), rows))


def _prior_with_energies(ctx: Context) -> Prior:
    """The first chosen prior; plausibility needs its typical energies."""
    prior = ctx.need_chosen("mnist")[0]
    if prior.energies is None:
        raise MissingRequirement(
            f"prior {prior.name!r} has no typical energies; basis priors measure adds them"
        )
    return prior


def _method(ctx: Context, default: str) -> Any:
    """The method chosen by the user, or a default; a few evaluations of it in miniature."""
    return ctx.schedule({"method": ctx.method or default})["method"]


def _checked_sources(ctx: Context, priors: Sequence[Prior], count: int) -> Tensor:
    """Sources of test mixtures that all priors can separate."""
    sources = ctx.pairs(count).sources
    for prior in priors:
        if tuple(sources.shape[2:]) != prior.shape:
            raise MissingRequirement(
                f"images of {ctx.data} have shape {tuple(sources.shape[2:])}, those of prior "
                f"{prior.name!r} {tuple(prior.shape)}"
            )
    return sources


def _run(
    ctx: Context,
    section: Section,
    prior: Prior,
    m: Tensor,
    mixing: Mixing | None,
    settings: dict[str, Any],
) -> Result:
    """Separates and adds the cost to the section; not cached."""
    result = separate_with(
        m, prior, mixing, seed=ctx.seed, **settings,
        progress=lambda p: ctx.on_progress(section.name, p.done / p.total),
    )  # fmt: skip
    section.seconds += result.seconds
    section.evaluations += int(result.item_evaluations.sum())
    return result
