"""Measurements of priors that the paper reports beside its separations."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from basis._figures import COLORS, Table, level_line, new_figure, save_figure
from basis.nn import bits_per_dimension
from basis.priors import Ladder, Prior, Tiled

__all__ = [
    "Cost",
    "Gradient",
    "Likelihoods",
    "bits",
    "cost_table",
    "evaluation_cost",
    "gradient_norms",
    "gradient_table",
    "likelihood_table",
    "likelihoods",
    "paper_sigmas",
    "plot_gradients",
]


def paper_sigmas() -> list[float]:
    """The paper's ten noise levels, largest first."""
    return [10 ** (-2 * i / 9) for i in range(10)]


@dataclass(frozen=True)
class Gradient:
    """sigma |grad log p_sigma(x + sigma n)|, in expectation over images and noise.

    For a prior that is sure of every pixel this is the norm of the noise itself, the square root of the number of pixels
    (`noise`), and it falls below as far as the noise cannot be told from the image.
    """

    sigma: float
    mean: float
    stderr: float
    noise: float


def gradient_norms(
    prior: Prior, images: Tensor, sigmas: Sequence[float] | None = None, *, seed: int = 0
) -> list[Gradient]:
    """The gradient study of the paper's section on the choice of steps.

    Args:
        prior: Any prior.
        images: Images in [0, 1], (n, channels, height, width).
        sigmas: Noise levels; the paper's ten by default.
    """
    rows = []
    for sigma in sigmas or paper_sigmas():
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(images.shape, generator=generator).to(images)
        with torch.no_grad():
            norms = sigma * prior.score(images + sigma * noise, sigma).flatten(1).norm(dim=1)
        spread = norms.std().item() if len(norms) > 1 else math.nan
        rows.append(
            Gradient(
                sigma,
                norms.mean().item(),
                spread / math.sqrt(len(norms)),
                math.sqrt(images[0].numel()),
            )
        )
    return rows


def bits(
    prior: Prior, images: Tensor, sigma: float, *, noisy: bool = True, seed: int = 0
) -> Tensor:
    """Bits per dimension of images under p_sigma, (n,).

    Args:
        prior: One with a likelihood.
        images: Images in [0, 1] as they are stored: each stands for an 8-bit step, within which it is spread out uniformly.
        sigma: Noise level of the model; 0 asks a noiseless one.
        noisy: Whether to add noise of that level first, which is what the model is a density of.
    """
    generator = torch.Generator().manual_seed(seed)
    within = (torch.rand(images.shape, generator=generator) - 0.5) / 255
    noise = sigma * torch.randn(images.shape, generator=generator) if noisy else 0.0
    x = images + (within + noise).to(images)
    return bits_per_dimension(prior.log_prob(x, sigma), images[0].numel())


@dataclass(frozen=True)
class Likelihoods:
    """A row of the paper's table of sample likelihoods: mean bits per dimension and standard errors.

    Attributes:
        noiseless: Test images under the noiseless model; None where the prior has none.
        noisy: Test images under p_sigma, at the smallest noise level `sigma`.
        separated: Separated sources under the same.
    """

    prior: str
    sigma: float
    count: int
    noiseless: tuple[float, float] | None
    noisy: tuple[float, float]
    separated: tuple[float, float] | None


def likelihoods(
    prior: Prior, images: Tensor, separated: Tensor | None = None, *, seed: int = 0
) -> Likelihoods:
    """How probable test images and separated sources are under a prior with a likelihood.

    Args:
        prior: The prior.
        images: Test images in [0, 1], (n, channels, height, width).
        separated: Separated sources, (m, channels, height, width).
    """
    sigma = prior.sigma_min
    # A ladder has one model per noise level, and none without noise.
    has_noiseless = not isinstance(getattr(prior, "module", None), Ladder)
    return Likelihoods(
        prior.name,
        sigma,
        len(images),
        _mean(bits(prior, images, 0.0, noisy=False, seed=seed)) if has_noiseless else None,
        _mean(bits(prior, images, sigma, seed=seed)),
        None if separated is None else _mean(bits(prior, separated, sigma, seed=seed)),
    )


def _mean(values: Tensor) -> tuple[float, float]:
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


def gradient_table(curves: Mapping[str, Sequence[Gradient]]) -> Table:
    """The gradient study as a table, one column per prior."""
    rows = [
        (f"{level[0].sigma:.4g}", *(f"{g.mean:.2f} ± {g.stderr:.2f}" for g in level))
        for level in zip(*curves.values(), strict=True)
    ]
    return Table(("σ", *curves), rows)


def plot_gradients(curves: Mapping[str, Sequence[Gradient]], path: str | Path) -> Path:
    """The study as a figure, one curve per prior."""
    figure, (axes,) = new_figure(6, 4)
    for (name, rows), color in zip(curves.items(), COLORS * 9, strict=False):
        sigmas = [r.sigma for r in rows]
        axes.plot(sigmas, [r.mean for r in rows], "o-", ms=4, lw=1.3, color=color, label=name)
    level_line(axes, next(iter(curves.values()))[0].noise, "the noise itself")
    axes.set(
        xscale="log", xlabel="σ", ylabel="σ |∇ log p$_σ$(x + σn)|, mean over images", ylim=(0, None)
    )
    axes.margins(y=0.1)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    return save_figure(figure, path)


@dataclass(frozen=True)
class Cost:
    """What one step costs: one denoising of one image, in tiles where it is larger than the prior's.

    Attributes:
        side: Side of the image.
        tiles: Network evaluations of one step.
        flops: Operations of one step (a multiplication and an addition are two).
        seconds: Of one step, where and as it was measured.
    """

    prior: str
    side: int
    tiles: int
    flops: int
    seconds: float

    @property
    def pixels(self) -> int:
        """In the image."""
        return self.side * self.side


def evaluation_cost(prior: Prior, side: int | None = None, *, repeats: int = 3) -> Cost:
    """Counts the operations of a step on one image and takes its time, the shortest of several."""
    from torch.utils.flop_counter import FlopCounterMode

    channels, height, _ = prior.shape
    side = side or height
    larger = prior if side == height else Tiled(prior, side, side)
    x = torch.rand(1, channels, side, side, device=prior.device)
    sigma = math.sqrt(prior.sigma_min * prior.sigma_max)
    with FlopCounterMode(display=False) as counter:
        larger.denoise(x, sigma)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        larger.denoise(x, sigma).sum().item()  # the sum waits for a device that works on its own
        times.append(time.perf_counter() - started)
    tiles = larger.cost // prior.cost
    return Cost(prior.name, side, tiles, counter.get_total_flops(), min(times))


def cost_table(costs: Sequence[Cost], steps: int, k: int) -> Table:
    """Costs of steps, and of a separation of k sources with so many steps each."""
    rows = []
    for c in costs:
        work = steps * k
        rows.append(
            (
                c.prior,
                f"{c.side}x{c.side}",
                f"{c.tiles}",
                f"{c.flops / 1e9:.3g}",
                f"{c.flops / c.pixels / 1e3:.3g}",
                f"{c.seconds / c.pixels * 1e6:.3g}",
                f"{c.flops * work / 1e12:.3g}",
                f"{c.seconds * work:,.1f}",
            )
        )
    header = (
        "prior", "image", "tiles", "GFLOP a step", "kFLOP a pixel and step", "µs a pixel and step",
        f"TFLOP, {k} sources in {steps} steps", "seconds",
    )  # fmt: skip
    return Table(header, rows)
