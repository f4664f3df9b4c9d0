"""Quality and cost of methods on the same test mixtures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._mix import Pairs
from basis.errors import BasisError, did_you_mean
from basis.lab.context import PriorOrPriors, separate_with
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table, level_line, log_scale, new_figure, save_figure
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers import SAMPLERS
from basis.samplers.sampler import Sampler
from basis.settings import METHODS, settings_from

DEFAULT_METHODS = (*METHODS, *SAMPLERS)
"""What a bench compares by default; `basis` has the paper's settings."""


def find_method(text: str) -> str | int | Sampler:
    """The `method` of `separate` that a text names.

    Args:
        text: A named method, a number of evaluations, or a sampler, whose settings may follow:
            "gibbs:steps=50,temperature=0".
    """
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text in METHODS:
        return text
    name, _, rest = text.partition(":")
    if name not in SAMPLERS:
        raise BasisError(
            f"unknown method {text!r}; accepted are {', '.join(DEFAULT_METHODS)}, a number of "
            "evaluations, and a sampler with settings such as gibbs:steps=50"
            f"{did_you_mean(name, (*METHODS, *SAMPLERS))}"
        )
    values = {}
    for entry in filter(None, rest.split(",")):
        setting, equals, value = entry.partition("=")
        if not equals:
            raise BasisError(f"settings of {name} are written name=value, not {entry!r}")
        values[setting] = _value(value)
    sampler: Sampler = settings_from(SAMPLERS[name], values, name)
    return sampler


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True)
class Quality:
    """PSNR in dB over the mixtures, and the cost per mixture; SNR for signals without bounds.

    Attributes:
        method: What the row is called.
        measure: "psnr" or "snr".
        mean, stderr, median: Of the measure over `count` mixtures.
        evaluations, most: Network evaluations of a mixture: mean and maximum.
        seconds: Per mixture.
        residual: The largest root mean square of m - A x.
        each: The measure of every mixture.
    """

    method: str
    measure: str
    mean: float
    stderr: float
    median: float
    count: int
    evaluations: float
    most: int
    seconds: float
    residual: float
    each: list[float]


def score_sources(estimate: Tensor, truth: Tensor, prior: Prior | None) -> tuple[str, Tensor]:
    """The measure and its values, (batch,): PSNR on the prior's range, or SNR if it has none."""
    low, high = (0.0, 1.0) if prior is None else (prior.low, prior.high)
    if low is None or high is None:
        return "snr", metrics.snr(estimate, truth, permute=True)
    return "psnr", metrics.psnr(estimate, truth, (low, high), permute=True)


def quality_of(
    name: str,
    sources: Tensor,
    pairs: Pairs,
    prior: Prior | None = None,
    *,
    evaluations: Tensor | None = None,
    seconds: float = 0.0,
    residual: float = 0.0,
) -> Quality:
    """The row for the sources that a method found.

    Args:
        name: What the row is called.
        sources: (batch, k, channels, *size).
        pairs: The mixtures.
        prior: The prior whose range of values PSNR is taken on; [0, 1] by default.
        evaluations: Of each mixture, (batch,); none by default.
        seconds: Of all mixtures together.
        residual: The largest of a mixture.
    """
    measure, scores = score_sources(sources, pairs.sources, prior)
    summary = metrics.summarize(scores)
    used = torch.zeros(1) if evaluations is None else evaluations.double()
    return Quality(
        name,
        measure,
        summary.mean,
        summary.stderr,
        summary.median,
        summary.count,
        used.mean().item(),
        int(used.max()),
        seconds / summary.count,
        residual,
        scores.tolist(),
    )


def average_quality(pairs: Pairs, prior: Prior | None = None) -> Quality:
    """The trivial baseline: every source is the mixture divided by the number of sources."""
    return quality_of("mixture / k", pairs.average(), pairs, prior)


def measure_quality(
    method: Any,
    prior: PriorOrPriors,
    pairs: Pairs,
    *,
    name: str | None = None,
    mixing: Mixing | None = None,
    observation: Tensor | None = None,
    estimate: str = "mode",
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 128,
    progress: Callable[[Progress], None] | None = None,
) -> list[Quality]:
    """Separates all mixtures by one method.

    Args:
        method, estimate, samples, batch_size: As for `separate`.
        prior: One for all sources, or one per source.
        pairs: The mixtures.
        name: What the row is called; the method by default.
        mixing: How sources are mixed; with alphas of 1 by default.
        observation: What is separated; the mixing of the sources by default.
        seed: Of the separations.
        progress: Called after every step.

    Returns:
        A row for the estimate; with samples also rows for one posterior sample, for their mean, and
        for that of each mixture that is closest to the truth. The estimate is not one of them.
    """
    first = prior if isinstance(prior, Prior) else prior[0]
    k = pairs.sources.shape[1]
    mixing = mixing or mixings.mixture((1.0,) * k, pairs.sources.shape[2])
    settings = {"method": method, "estimate": estimate, "samples": samples, "seed": seed}
    settings |= {"batch_size": batch_size, "progress": progress}
    observed = mixing(pairs.sources) if observation is None else observation
    result = separate_with(observed, prior, mixing, **settings)
    name = name or (method.name if isinstance(method, Sampler) else str(method))
    cost: dict[str, Any] = {
        "evaluations": result.item_evaluations,
        "seconds": result.seconds,
        "residual": result.residual.max().item(),
    }
    rows = [quality_of(name, result.sources, pairs, first, **cost)]
    if samples is not None and samples > 1 and result.samples is not None:
        each = result.samples.unbind(1)
        closest = torch.stack([score_sources(s, pairs.sources, first)[1] for s in each])
        best = torch.stack(each, dim=1)[torch.arange(len(observed)), closest.argmax(dim=0)]
        rows += [
            quality_of(f"{name}, {title}", found, pairs, first, **cost)
            for title, found in (
                ("one posterior sample", each[0]),
                (f"mean of {samples} posterior samples", result.samples.mean(dim=1)),
                (f"closest of {samples} posterior samples", best),
            )
        ]
    return rows


def quality_table(rows: Sequence[Quality], times: bool = True) -> Table:
    """The rows as a table, with or without times."""
    paper = next((r for r in rows if r.method == "basis"), None)
    measure = rows[0].measure.upper()
    header: tuple[str, ...] = (
        "", f"{measure}, mean ± standard error", "median", "evaluations, mean (maximum)",
    )  # fmt: skip
    header += ("seconds per mixture", "time of `basis` / time") if times else ()
    cells = []
    for r in rows:
        ratio = f"{paper.seconds / r.seconds:.1f}" if paper and r.seconds else ""
        quality = f"{r.mean:.2f} ± {r.stderr:.2f}", f"{r.median:.2f}"
        evaluations = f"{r.evaluations:,.0f} ({r.most:,})"
        cells.append(
            (r.method, *quality, evaluations) + ((f"{r.seconds:.3f}", ratio) if times else ())
        )
    return Table(header, cells)


def plot_quality(
    rows: Sequence[Quality], path: str | Path, title: str = "", *, times: bool = True
) -> Path:
    """Plots the measure against evaluations and against time, one point per method."""
    fields = [("evaluations", "network evaluations per mixture")]
    fields += [("seconds", "seconds per mixture")] if times else []
    figure, axes = new_figure(5.5 * len(fields), 4, len(fields), sharey=True)
    shown = [r for r in rows if r.evaluations]
    searches = sorted(
        (r for r in shown if r.method in METHODS or r.method.isdecimal()),
        key=lambda r: r.evaluations,
    )
    for ax, (field, label) in zip(axes, fields, strict=True):
        ax.plot(
            [getattr(r, field) for r in searches], [r.mean for r in searches],
            color="#c2255c", lw=1.2, zorder=1,
        )  # fmt: skip
        for r in shown:
            color = "#c2255c" if r in searches else "#e8590c" if r.method == "basis" else "#3b5bdb"
            x = getattr(r, field)
            ax.errorbar(x, r.mean, yerr=r.stderr, fmt="o", ms=5, capsize=2, color=color, zorder=2)
            # Searches above their line, samplers to the right of their points.
            ax.annotate(
                r.method, (x, r.mean), textcoords="offset points", fontsize=8,
                xytext=(-5, 9) if r in searches else (7, -3),
                ha="right" if r in searches else "left",
            )  # fmt: skip
        ax.set(xlabel=label)
        ax.margins(x=0.16)
        log_scale(ax)
        for r in rows:
            if not r.evaluations:
                level_line(ax, r.mean, r.method)
    axes[0].set_ylabel(f"{rows[0].measure.upper()}, dB (mean ± standard error)")
    figure.suptitle(title, fontsize=10)
    return save_figure(figure, path)


Peer = Literal["mmps", "tmpd", "dps"]
PEERS: tuple[Peer, ...] = get_args(Peer)
"""Methods of azula that are compared: MMPS (arXiv:2405.13712), TMPD (arXiv:2310.06721) and DPS
(arXiv:2209.14687). They differentiate through the network; a back-propagation to its input costs
about as much as an evaluation and counts as one."""

_PASSES: dict[str, int] = {"mmps": 3, "tmpd": 3, "dps": 2}  # of a step, each source counted once
_PEER_NOISE = 1e-2  # of an exact mixture, in std of the prior: the peers divide by it
_PEER_BATCH = 64


class _Counted(torch.autograd.Function):
    """The identity, which counts how often a batch passes through the network and back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, passes: list[int]) -> Tensor:
        ctx.passes = passes
        passes[0] += 1
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.passes[0] += 1
        return grads[0], None


def measure_peer(
    peer: Peer, prior: Prior, pairs: Pairs, *, evaluations: int = 200, seed: int = 0
) -> Quality:
    """Separates all mixtures (alphas of 1) by a method of azula with its default settings.

    Args:
        peer: The method.
        prior: The prior of all sources.
        pairs: The mixtures.
        evaluations: At most this many passes through the network per mixture, forward and backward.
        seed: Of all random numbers.
    """
    if peer not in PEERS:
        raise BasisError(f"peer must be one of {', '.join(PEERS)}, not {peer!r}")
    k = pairs.sources.shape[1]
    steps = evaluations // (k * _PASSES[peer])
    if steps < 1:
        raise BasisError(f"{peer} needs at least {k * _PASSES[peer]} evaluations for {k} sources")
    started, passes, found = time.perf_counter(), [0], []
    mixtures = pairs.mix((1.0,) * k)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for m in mixtures.split(_PEER_BATCH):
            passes[0] = 0
            found.append(_separate_by_peer(peer, prior, m, k, steps, passes))
    sources = torch.cat(found)
    return quality_of(
        f"{peer} (azula)", sources, pairs, prior,
        evaluations=torch.full((len(sources),), k * passes[0]),
        seconds=time.perf_counter() - started,
        residual=metrics.rms(mixtures - sources.sum(dim=1)).max().item(),
    )  # fmt: skip


def _separate_by_peer(
    peer: Peer, prior: Prior, m: Tensor, k: int, steps: int, passes: list[int]
) -> Tensor:
    """One batch of mixtures to (batch, k, channels, *size)."""
    try:
        from azula.denoise import Denoiser, DiracPosterior
        from azula.guidance.dps import DPSSampler
        from azula.guidance.mmps import MMPSDenoiser
        from azula.guidance.tmpd import TMPDenoiser
        from azula.linalg.covariance import IsotropicCovariance
        from azula.noise import VESchedule
        from azula.sample import DDPMSampler
    except ImportError as error:
        raise BasisError("peers need azula: pip install --no-deps azula einops") from error

    sigma_min = max(prior.sigma_min, 0.03 * prior.std)
    sigma_max = min(prior.sigma_max, 10 * prior.std)

    class Network(Denoiser):  # type: ignore[misc]
        """The prior as azula calls it, all sources of a mixture in one row."""

        schedule = VESchedule(sigma_min, sigma_max)

        def forward(self, x_t: Tensor, t: Tensor, **kwargs: Any) -> Any:
            _, sigma = self.schedule(t)
            x = _Counted.apply(x_t, passes)
            mean = prior.denoise(x.reshape(-1, *prior.shape), sigma.item())
            return DiracPosterior(mean=mean.reshape(x_t.shape))

    def mix(x: Tensor) -> Tensor:
        return x.unflatten(1, (k, -1)).sum(dim=1)

    y, variance = m.flatten(1), (_PEER_NOISE * prior.std) ** 2
    settings: dict[str, Any] = {"steps": steps, "silent": True}
    if peer == "dps":
        # Its step is divided by the norm over the whole batch; the strength grows with the root of
        # the batch size, so that a mixture is treated as if it were alone.
        sampler: Any = DPSSampler(Network(), y, mix, zeta=math.sqrt(len(m)), **settings)
    elif peer == "tmpd":
        sampler = DDPMSampler(TMPDenoiser(Network(), y, mix, variance), **settings)
    else:
        guided = MMPSDenoiser(Network(), y, mix, IsotropicCovariance(variance))
        sampler = DDPMSampler(guided, **settings)
    start = sampler.init((len(m), k * math.prod(prior.shape)), mean=prior.center)
    x = sampler(start.to(m)).reshape(len(m), k, *prior.shape)
    return x.clamp(prior.low, prior.high) if None not in (prior.low, prior.high) else x
