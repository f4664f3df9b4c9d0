"""Measurements of priors: gradients, likelihoods and cost."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from basis._check import value_scale
from basis.errors import BasisError
from basis.lab.cache import CachedResult
from basis.lab.context import Context
from basis.lab.report import Section, mean_and_error
from basis.lab.tables.mnist import BEST_OF_TEN
from basis.nn.ladder import Ladder
from basis.plots.charts import COLORS, Table, level_line, new_figure, save_figure
from basis.priors.likelihood import with_likelihood
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.samplers.sampler import geometric

# Gradients


@dataclass(frozen=True)
class Gradient:
    """The norm of sigma grad log p_sigma(x + sigma n), in expectation over signals and noise.

    For a prior that knows every value it is the norm of the noise itself, the square root of the
    number of values (`noise`); it is smaller as far as noise and signal cannot be told apart.
    """

    sigma: float
    mean: float
    stderr: float
    noise: float


def study_sigmas(prior: Prior) -> list[float]:
    """The paper's ten noise levels in units of the prior's values, as far as the prior has them."""
    scale = value_scale(prior)
    if scale == 1 and prior.sigma_min <= 0.01 and prior.sigma_max >= 1:
        return [10 ** (-2 * i / 9) for i in range(10)]
    first, last = min(scale, prior.sigma_max), max(0.01 * scale, prior.sigma_min)
    return geometric(max(first, last), last, 10)


def gradient_norms(
    prior: Prior, signals: Tensor, sigmas: Sequence[float] | None = None, *, seed: int = 0
) -> list[Gradient]:
    """The norm of the gradient on noised signals, (n, *prior.shape), at several noise levels.

    Args:
        sigmas: Noise levels; those of `study_sigmas` by default.
        seed: Seed of the noise.
    """
    prior.check_signals(signals)
    rows = []
    for sigma in sigmas or study_sigmas(prior):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(signals.shape, generator=generator).to(signals)
        with torch.no_grad():
            norms = sigma * prior.score(signals + sigma * noise, sigma).flatten(1).norm(dim=1)
        std = norms.std().item() if len(norms) > 1 else math.nan
        root = math.sqrt(signals[0].numel())
        rows.append(Gradient(sigma, norms.mean().item(), std / math.sqrt(len(norms)), root))
    return rows


def plot_gradients(curves: Mapping[str, Sequence[Gradient]], path: str | Path) -> Path:
    """One curve per prior."""
    figure, (axes,) = new_figure(6, 4)
    for (name, rows), color in zip(curves.items(), COLORS * 9, strict=False):
        sigmas = [r.sigma for r in rows]
        axes.plot(sigmas, [r.mean for r in rows], "o-", ms=4, lw=1.3, color=color, label=name)
    level_line(axes, next(iter(curves.values()))[0].noise, "norm of the noise")
    axes.set(
        xscale="log", xlabel="σ", ylabel="σ |∇ log p$_σ$(x + σn)|, mean over images", ylim=(0, None)
    )
    axes.margins(y=0.1)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    return save_figure(figure, path)


def gradients(ctx: Context, section: Section) -> None:
    """Norm of the gradient at ten noise levels, for every prior."""
    count = ctx.count(256, at_least=8)
    images = ctx.pairs(max(1, count // 2)).sources.flatten(0, 1)
    curves: dict[str, list[Gradient]] = {}
    for prior in ctx.need_chosen("mnist", "mnist-glow"):

        def measure(prior: Prior = prior) -> CachedResult:
            rows = gradient_norms(prior, images.to(prior.device or "cpu"))
            return CachedResult(values={"rows": [asdict(row) for row in rows]})

        key = {"prior": ctx.hash_of(prior), "images": images}
        result = ctx.cached("gradients", key, measure)
        curves[prior.name] = [Gradient(**row) for row in result.values["rows"]]
        section.seconds += result.seconds
        section.evaluations += len(curves[prior.name]) * len(images) * prior.evaluations
    add_figure(
        section, f"Mean over {len(images)} test images", lambda path: plot_gradients(curves, path)
    )
    rows = [
        (f"{level[0].sigma:.4g}", *(f"{g.mean:.2f} ± {g.stderr:.2f}" for g in level))
        for level in zip(*curves.values(), strict=True)
    ]
    section.tables.append(Table(("σ", *curves), rows))
    section.text.append(
        "In expectation over test images and noise. The paper chooses eta proportional to sigma^2 "
        "because this is nearly constant."
    )


def add_figure(section: Section, caption: str, plot: Callable[[Path], Path]) -> None:
    """Adds a figure that `plot` writes to a path; if matplotlib is missing, the text says so."""
    with tempfile.TemporaryDirectory() as work:
        try:
            section.pictures.append((caption, plot(Path(work) / "figure.png").read_bytes()))
        except BasisError as error:
            section.text.append(str(error))


# Likelihoods


def bits(
    prior: Prior, signals: Tensor, sigma: float, *, noisy: bool = True, seed: int = 0
) -> Tensor:
    """Bits per dimension of signals, (n, *prior.shape), under p_sigma: (n,).

    Values of a prior with bounds stand for 8-bit steps, 255 over its range, in which they are
    uniformly distributed; without bounds the values are taken as they are, under a density.

    Args:
        prior: A prior with a likelihood.
        sigma: Noise level of the model; 0 for a noiseless one.
        noisy: Whether to add noise of that level first, as the model's density requires.
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


def has_noiseless_model(prior: Prior) -> bool:
    """Whether a prior has a model without noise; a ladder, an energy and a noisy flow have none."""
    models = (prior, *(getattr(prior, name, None) for name in ("module", "model")))
    return all(getattr(m, "noiseless", True) and not isinstance(m, Ladder) for m in models)


def likelihoods(ctx: Context, section: Section) -> None:
    """Bits per dimension of test images and of sources separated with the same prior."""
    rows = []
    count = ctx.count(64)
    for prior in with_likelihood(ctx.need_chosen("mnist-glow")):
        method = ctx.method or BEST_OF_TEN
        done = ctx.separate_pairs(prior, count, method=method)
        section.add_cost(done)
        place = prior.device or "cpu"
        truth = ctx.pairs(count).sources.flatten(0, 1).to(place)
        prior.check_signals(truth)
        found, sigma = done.sources.flatten(0, 1).to(place), prior.sigma_min
        noiseless = ""
        if has_noiseless_model(prior):
            noiseless = mean_and_error(bits(prior, truth, 0.0, noisy=False, seed=ctx.seed), 3)
        rows.append(
            (
                prior.name,
                noiseless,
                mean_and_error(bits(prior, truth, sigma, seed=ctx.seed), 3),
                mean_and_error(bits(prior, found, sigma, seed=ctx.seed), 3),
                f"{sigma:g}",
                mean_and_error(done.psnr),
                f"{done.evaluations.double().mean().item():,.0f}",
                f"{done.seconds / count:.2f}",
                f"{sum(p.numel() for p in prior.parameters()):,}",
            )
        )
    header = (
        "prior", "test images, noiseless model", "test images, p_σ", "separated sources, p_σ", "σ",
        "PSNR, dB", "evaluations", "seconds per mixture", "parameters",
    )  # fmt: skip
    section.tables.append(Table(header, rows))
    how = "the best of ten samples by likelihood" if ctx.method is None else f"{ctx.method}"
    section.text.append(
        f"Bits per dimension, mean ± standard error over {2 * count} images. Separated sources: "
        f"{how}."
    )


# Cost


@dataclass(frozen=True)
class Cost:
    """The cost of one step: one denoising of one signal, in tiles if it is larger than the prior's.

    Attributes:
        prior: The prior's name.
        size: Size of the signal without its channels: (height, width) of a picture.
        tiles: Network evaluations of one step.
        flops: Operations of one step (a multiplication and an addition are two).
        seconds: Of one step, the shortest of several.
    """

    prior: str
    size: tuple[int, ...]
    tiles: int
    flops: int
    seconds: float

    @property
    def pixels(self) -> int:
        """Number of positions in the signal."""
        return math.prod(self.size)


def evaluation_cost(prior: Prior, side: int | None = None, *, repeats: int = 3) -> Cost:
    """Counts the operations of a step on one signal and times it.

    Args:
        prior: Any prior.
        side: Side of a picture larger than the prior's own, which is cut into tiles.
        repeats: How often the step is timed.
    """
    from torch.utils.flop_counter import FlopCounterMode

    channels, *own = prior.shape
    size, larger = tuple(own), prior
    if side is not None and size != (side, side):
        if len(size) != 2:
            raise BasisError(
                f"side needs a prior of pictures; signals of prior {prior.name!r} have shape "
                f"{tuple(prior.shape)}"
            )
        size, larger = (side, side), Tiled(prior, side, side)
    x = torch.rand(1, channels, *size, device=prior.device)
    sigma = math.sqrt(prior.sigma_min * prior.sigma_max)
    with FlopCounterMode(display=False) as counter:
        larger.denoise(x, sigma)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        larger.denoise(x, sigma).sum().item()  # the sum waits for an asynchronous device
        times.append(time.perf_counter() - started)
    tiles = larger.evaluations // prior.evaluations
    return Cost(prior.name, size, tiles, counter.get_total_flops(), min(times))


def cost(ctx: Context, section: Section) -> None:
    """Operations and seconds of one step, at the prior's own size and in tiles."""
    steps, k = 98, 2
    rows = []
    for prior in ctx.need_chosen("mnist", "cifar10"):
        sides = [None, 64, 256] if len(prior.shape) == 3 and not ctx.miniature else [None]
        for side in sides:
            c = evaluation_cost(prior, side)
            work = steps * k
            rows.append(
                (
                    c.prior,
                    "x".join(map(str, c.size)),
                    f"{c.tiles}",
                    f"{c.flops / 1e9:.3g}",
                    f"{c.flops / c.pixels / 1e3:.3g}",
                    f"{c.seconds / c.pixels * 1e6:.3g}",
                    f"{c.flops * work / 1e12:.3g}",
                    f"{c.seconds * work:,.1f}",
                )
            )
    header = (
        "prior", "size", "tiles", "GFLOP per step", "kFLOP per pixel and step",
        "µs per pixel and step", f"TFLOP, {k} sources in {steps} steps", "seconds",
    )  # fmt: skip
    section.tables.append(Table(header, rows))
    section.text.append(f"One image at a time on {ctx.device}, {torch.get_num_threads()} threads.")
