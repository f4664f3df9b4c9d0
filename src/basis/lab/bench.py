"""How good separations are: PSNR and cost of every effort and sampler on the same mixtures."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from basis import metrics
from basis._check import value_scale
from basis._mix import Pairs
from basis._separate import separate, separate_each
from basis.errors import BasisError
from basis.plots.charts import Table, level_line, log_scale, new_figure, save_figure
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers import SAMPLERS
from basis.settings import EFFORTS


@dataclass(frozen=True)
class Way:
    """A way of separating: its name in the table, and the arguments that `separate` gets."""

    name: str
    settings: dict[str, Any]


WAYS: dict[str, Way] = {
    **{name: Way(f"effort {name}", {"effort": name}) for name in EFFORTS},
    **{name: Way(name, {"sampler": name}) for name in SAMPLERS},
}
"""Every named effort and every sampler with its default settings; `basis` is the paper's."""

_ABLATIONS = ("greedy", "noise-conditioned")  # ascents, measured by the paper's ablation alone

DEFAULT_WAYS = tuple(name for name in WAYS if name not in _ABLATIONS)
"""What a bench compares where nothing else is asked for."""


def find_way(name: str) -> Way:
    """A way by its name; a number is an effort of that many evaluations per mixture."""
    if name.isdecimal() and int(name) > 0:
        return Way(f"effort {name}", {"effort": int(name)})
    try:
        return WAYS[name]
    except KeyError as error:
        raise BasisError(
            f"unknown way {name!r}: give some of {', '.join(WAYS)}, or a number of evaluations"
        ) from error


@dataclass(frozen=True)
class Quality:
    """One row of the table: PSNR in dB over the mixtures, and what a mixture cost.

    Attributes:
        way: Name of the way of separating.
        mean, stderr, median: Of PSNR over `count` mixtures.
        evaluations, most: Network evaluations of a mixture: the mean and the largest number.
        seconds: Time per mixture.
        residual: The largest root mean square of m - A x.
        each: PSNR of every mixture.
    """

    way: str
    mean: float
    stderr: float
    median: float
    count: int
    evaluations: float
    most: int
    seconds: float
    residual: float
    each: list[float]


def measure_quality(
    way: Way,
    prior: Prior,
    pairs: Pairs,
    *,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Quality:
    """Separates all mixtures (of equal weights) in one way."""
    alphas = (1.0,) * pairs.sources.shape[1]
    result = separate(
        pairs.mix(alphas), prior, alphas=alphas, seed=seed, progress=progress, **way.settings
    )
    spent, residual = result.spent.double(), result.residual.max().item()
    return quality_of(way.name, result.sources, pairs, prior, spent, result.seconds, residual)


def quality_of(
    name: str,
    sources: Tensor,
    pairs: Pairs,
    prior: Prior | None,
    spent: Tensor,
    seconds: float,
    residual: float,
) -> Quality:
    """The row of a comparison, from what a method found.

    Args:
        name: What the row is called.
        sources: What was found, (batch, k, channels, *size).
        pairs: The mixtures, with their sources.
        prior: The prior whose range of values PSNR is taken on; [0, 1] by default.
        spent: Evaluations of each mixture, (batch,).
        seconds: Of all mixtures together.
        residual: The largest of a mixture.
    """
    scores = score_sources(sources, pairs.sources, prior)
    summary = metrics.summarize(scores)
    return Quality(
        name,
        summary.mean,
        summary.stderr,
        summary.median,
        summary.count,
        spent.double().mean().item(),
        int(spent.max()),
        seconds / summary.count,
        residual,
        scores.tolist(),
    )


def average_quality(pairs: Pairs, prior: Prior | None = None) -> Quality:
    """The row to beat: every source is the mixture divided by the number of sources.

    Args:
        pairs: The mixtures.
        prior: The prior whose range of values PSNR is taken on; [0, 1] by default.
    """
    return quality_of("average", pairs.average(), pairs, prior, torch.zeros(1), 0.0, 0.0)


def score_sources(estimate: Tensor, truth: Tensor, prior: Prior | None) -> Tensor:
    """PSNR per mixture on the range of the prior's values, (batch,)."""
    if prior is None:
        return metrics.psnr(estimate, truth, permute=True)
    return metrics.psnr(
        estimate, truth, (prior.low, prior.high), peak=value_scale(prior), permute=True
    )


def plot_quality(
    rows: Sequence[Quality], path: str | Path, title: str = "", *, times: bool = True
) -> Path:
    """Plots PSNR against evaluations and against time, one point per way."""
    fields = [("evaluations", "network evaluations per mixture")]
    fields += [("seconds", "seconds per mixture")] if times else []
    figure, axes = new_figure(10 if times else 7, 4.4, len(fields), sharey=True)
    shown = [r for r in rows if r.evaluations]
    efforts = sorted((r for r in shown if r.way.startswith("effort")), key=lambda r: r.evaluations)
    for ax, (field, label) in zip(axes, fields, strict=True):
        ax.plot(
            [getattr(r, field) for r in efforts],
            [r.mean for r in efforts],
            color="#c2255c",
            lw=1.2,
            zorder=1,
        )
        for r in shown:
            color = "#c2255c" if r in efforts else "#e8590c" if r.way == "basis" else "#3b5bdb"
            at = getattr(r, field)
            ax.errorbar(at, r.mean, yerr=r.stderr, fmt="o", ms=5, capsize=2, color=color, zorder=2)
            ax.annotate(
                r.way.removeprefix("effort "),
                (at, r.mean),
                textcoords="offset points",
                # Efforts above their line, samplers beside their points: the two may coincide.
                xytext=(-5, 9) if r in efforts else (7, -3),
                ha="right" if r in efforts else "left",
                fontsize=8,
            )
        ax.set(xlabel=label)
        ax.margins(x=0.16)
        log_scale(ax)
    for r in rows:
        if r.way == "average":
            for ax in axes:
                level_line(ax, r.mean, "average of the mixture")
    axes[0].set_ylabel("PSNR, dB (mean ± standard error)")
    figure.suptitle(title, fontsize=10)
    return save_figure(figure, path)


@dataclass(frozen=True)
class Growth:
    """Time and memory of separating mixtures of k sources under a short schedule.

    `memory` is the most that the process held above what it held before, in MiB; None where the
    system does not report it.
    """

    mixtures: int
    k: int
    evaluations: int
    seconds: float
    memory: float | None


def measure_growth(
    prior: Prior,
    signals: Tensor,
    *,
    mixtures: int,
    k: int = 2,
    effort: int | None = None,
    batch: int = 500,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Growth:
    """Separates mixtures of random signals as a stream of batches.

    Args:
        prior: The prior.
        signals: Float signals to mix, (n, *prior.shape).
        mixtures, k: How many mixtures, and of how many sources.
        effort: Evaluations per mixture; a few steps (4 per source) by default.
        batch: Mixtures in memory at a time.
        seed: Seed of the draw and of the separations.
        progress: Called with the number of mixtures that are done.
    """
    gc.collect()
    before = _resident()
    most = before or 0.0
    generator = torch.Generator().manual_seed(seed)

    def batches() -> Iterator[Tensor]:
        for first in range(0, mixtures, batch):
            count = min(batch, mixtures - first)
            pick = torch.randint(len(signals), (count, k), generator=generator)
            yield signals[pick].sum(dim=1)

    def watch(_: Progress) -> None:
        nonlocal most
        most = max(most, _resident() or 0.0)

    done, evaluations, started = 0, 0, time.perf_counter()
    settings = {"alphas": (1.0,) * k, "effort": effort or 4 * k, "seed": seed, "progress": watch}
    for result in separate_each(batches(), prior, **settings):
        done += len(result.sources)
        evaluations = result.evaluations
        if progress is not None:
            progress(done)
    took = time.perf_counter() - started
    return Growth(mixtures, k, evaluations, took, None if before is None else most - before)


def _resident() -> float | None:
    """The process's memory in MiB, where the system reports it as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True)
class Speed:
    """How fast the network runs, beside what the machine can do.

    Attributes:
        images_per_second: Signals denoised per second.
        gflop_per_image: Operations of one denoising, in 10^9.
        network_gflops: Operations of the network per second, in 10^9.
        matmul_gflops: The same for a large matrix product.
        threads: Threads that torch uses.
    """

    images_per_second: float
    gflop_per_image: float
    network_gflops: float
    matmul_gflops: float
    threads: int

    @property
    def share(self) -> float:
        """The network's arithmetic as a share of the machine's measured matrix-multiply speed."""
        return self.network_gflops / self.matmul_gflops


def measure_speed(prior: Prior, *, batch: int = 256, seconds: float = 3.0) -> Speed:
    """Times the prior's denoiser as separations run it (a worker per core), and a matrix product.

    Args:
        prior: Any prior.
        batch: Signals per call.
        seconds: How long each of the two is timed.
    """
    from concurrent.futures import ThreadPoolExecutor

    from torch.utils.flop_counter import FlopCounterMode

    from basis.devices import default_workers, threads

    device = prior.device or torch.device("cpu")
    x = torch.rand(batch, *prior.shape, device=device)
    sigma = (prior.sigma_min * prior.sigma_max) ** 0.5
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        prior.denoise(x[:1], sigma)
    flop = counter.get_total_flops() / 1e9

    workers = default_workers(device)

    def denoise() -> None:
        with torch.inference_mode():
            prior.moments(x, sigma)
        _wait(device)

    own = torch.get_num_threads()
    with threads(1 if workers > 1 else own), ThreadPoolExecutor(workers) as pool:
        counts = pool.map(lambda _: _repeat(denoise, seconds), range(workers))
        rate = sum(batch * n / took for n, took in counts)

    side = 2048
    a, b = (torch.rand(side, side, device=device) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)
        _wait(device)

    n, took = _repeat(multiply, seconds)
    return Speed(rate, flop, rate * flop, n * 2 * side**3 / took / 1e9, own)


def _repeat(call: Callable[[], object], seconds: float) -> tuple[int, float]:
    """How often `call` ran and how long that took, after one run to warm up."""
    call()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        call()
        count += 1
    return count, time.perf_counter() - started


def _wait(device: torch.device) -> None:
    """Waits until a device that computes on its own has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def growth_cases(mixtures: Sequence[int], sources: Sequence[int]) -> list[tuple[int, int]]:
    """What growth is measured on, as (mixtures, sources).

    Every number of mixtures with two sources, then the smallest number with each other number of
    sources.
    """
    if any(count < 1 for count in mixtures):
        raise BasisError(f"numbers of mixtures must be at least 1, not {list(mixtures)}")
    cases = [(count, 2) for count in sorted(mixtures)]
    return cases + [(min(mixtures), k) for k in sources if k != 2] if mixtures else cases


def markdown(
    rows: Sequence[Quality],
    speed: Speed | None = None,
    growth: Sequence[Growth] = (),
    *,
    times: bool = True,
) -> str:
    """The tables in Markdown.

    Args:
        rows, speed, growth: What was measured.
        times: Whether to show times; leave them out where other work disturbed them.
    """
    parts = []
    if rows:
        parts.append(_quality_table(rows, times).markdown())
    if speed:
        parts.append(
            f"Network: {speed.images_per_second:.0f} images/s at {speed.gflop_per_image:.3f} GFLOP "
            f"each, {speed.network_gflops:.0f} GFLOP/s: {speed.share:.0%} of this machine's matrix "
            f"product ({speed.matmul_gflops:.0f} GFLOP/s, {speed.threads} threads).\n"
        )
    if growth:
        parts.append(_growth_table(growth).markdown())
    return "\n".join(parts)


def _quality_table(rows: Sequence[Quality], times: bool) -> Table:
    paper = next((r for r in rows if r.way == "basis"), None)
    header: tuple[str, ...] = (
        "", "PSNR, mean ± standard error", "median", "evaluations, mean (most)",
    )  # fmt: skip
    header += ("seconds per mixture", "time of `basis` / time") if times else ()
    cells = []
    for r in rows:
        ratio = f"{paper.seconds / r.seconds:.1f}" if paper and r.seconds else ""
        quality = (r.way, f"{r.mean:.2f} ± {r.stderr:.2f}", f"{r.median:.2f}")
        spent = (f"{r.evaluations:,.0f} ({r.most:,})",)
        cells.append(quality + spent + ((f"{r.seconds:.3f}", ratio) if times else ()))
    return Table(header, cells)


def _growth_table(growth: Sequence[Growth]) -> Table:
    header = (
        "mixtures", "sources", "evaluations each", "seconds", "milliseconds per mixture",
        "memory above start, MiB",
    )  # fmt: skip
    cells = [
        (
            f"{g.mixtures:,}",
            f"{g.k}",
            f"{g.evaluations}",
            f"{g.seconds:.1f}",
            f"{1000 * g.seconds / g.mixtures:.1f}",
            "?" if g.memory is None else f"{g.memory:.0f}",
        )
        for g in growth
    ]
    return Table(header, cells)


def record(
    rows: Sequence[Quality], speed: Speed | None = None, growth: Sequence[Growth] = ()
) -> dict[str, Any]:
    """The measurements as data for JSON."""
    return {
        "quality": [asdict(r) for r in rows],
        "speed": None if speed is None else {**asdict(speed), "share": speed.share},
        "growth": [asdict(g) for g in growth],
    }
