"""The result of a separation: what was found, how certain it is, and its files."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from basis import metrics
from basis.errors import BasisError, printable
from basis.files import RunFolder, check_disk_space, check_replaceable, whole_file
from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.search.uncertainty import Mode, central_interval, find_modes

if TYPE_CHECKING:
    from PIL import Image

_ROWS = 24  # items in a panel
_LINES = 5  # items that a summary lists
_MINOR = 0.05  # modes below this weight are left out of summaries


@dataclass(frozen=True)
class Result:
    """What `separate` found.

    Attributes:
        sources: (batch, k, channels, *size), in the priors' range.
        observation: What was separated, (batch, *observed shape).
        mixing: How the sources make the observation.
        names: A name per source, from the priors.
        item_names: A name per item.
        alphas: The mixing coefficients, (batch, k), as given or estimated; 0 for a source that an
            item does not have. None if the mixing is not a sum of scaled sources.
        samples: Samples of the posterior, (batch, samples, k, channels, *size), with exchangeable
            sources in the order of `sources`; None unless `samples` was given.
        residual: Root mean square of m - A x, (batch,).
        plausibility: (batch,), 0 to 1: the fraction of sources separated from mixtures of the
            prior's own signals that are less probable than these. It measures whether each source
            looks like a signal that the prior knows, not whether the split is right: wrong sources
            that look like such signals have a high plausibility. Low values have a warning. None if
            the prior has no typical energies.
        source_energies: What the plausibility is based on, (batch, k), in nats up to a constant.
        warnings: What to check, a sentence per item; empty if there is nothing.
        truth: The true sources, (batch, k, channels, *size), if the observation had them.
        identifiable: Whether estimated alphas are determined at all, (batch,) of bool. None if none
            were estimated.
        counts: The number of sources of every item, (batch,), if it was unknown.
        trajectory: States at noise levels, sigma to (batch, chains, k, channels, *size), with their
            noise; empty unless the plan asks for them.
        item_evaluations: Network evaluations, (batch,).
        energies: What the best chain was chosen by, (batch, chains), in nats up to a constant.
        exchangeable: Which sources have no order of their own, (k, k) of bool.
        value_range: The bounds of the sources' values, None for one that is unbounded.
        prior_std: The standard deviation of the priors' values, the unit of distances of modes.
        settings: Priors, mixing and plan in full, with the versions that ran them.
        seed: The seed of all random numbers.
        seconds: The time it took.
    """

    sources: Tensor
    observation: Tensor
    mixing: Mixing
    names: tuple[str, ...]
    item_names: tuple[str, ...]
    alphas: Tensor | None
    samples: Tensor | None
    residual: Tensor
    plausibility: Tensor | None
    source_energies: Tensor | None
    warnings: tuple[str, ...]
    item_evaluations: Tensor
    energies: Tensor
    exchangeable: Tensor
    value_range: tuple[float | None, float | None]
    prior_std: float
    settings: Mapping[str, Any]
    seed: int
    seconds: float
    truth: Tensor | None = None
    identifiable: Tensor | None = None
    counts: Tensor | None = None
    trajectory: Mapping[float, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.sources.shape))
        cost = f"{self.evaluations} evaluations per item, {self.seconds:.1f} s"
        return f"Result(sources {shape}, {cost})"

    def __str__(self) -> str:
        return "\n".join(summary(self))

    def __getitem__(self, name: str) -> Tensor:
        """The source of this name, (batch, channels, *size)."""
        if name not in self.names:
            raise BasisError(f"there is no source {name!r}; the names are {', '.join(self.names)}")
        return self.sources[:, self.names.index(name)]

    @property
    def evaluations(self) -> int:
        """Network evaluations per item: the mean over items, rounded up."""
        return math.ceil(self.item_evaluations.double().mean().item())

    @property
    def mean(self) -> Tensor | None:
        """The mean of the samples, (batch, k, channels, *size); None without samples."""
        return None if self.samples is None else self.samples.mean(dim=1)

    @property
    def std(self) -> Tensor | None:
        """The standard deviation of the samples, (batch, k, channels, *size), from two samples."""
        if self.samples is None or self.samples.shape[1] < 2:
            return None
        return self.samples.std(dim=1)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Bounds between which each value lies with this probability, given the observation.

        From 2 / (1 - level) - 1 samples (19 for 90 %) they are order statistics, which assume no
        distribution. With fewer, values are taken to be normal.

        Returns:
            Lower and upper bounds, (batch, k, channels, *size) each.
        """
        if self.samples is None or self.samples.shape[1] < 2:
            raise BasisError("interval needs at least two samples; pass samples=20 to separate")
        return central_interval(self.samples, level)

    @cached_property
    def modes(self) -> list[tuple[Mode, ...]] | None:
        """The modes of every item by descending weight; None without samples."""
        if self.samples is None:
            return None
        return [find_modes(item, self.prior_std, self.exchangeable) for item in self.samples]

    def panel(self, rows: int = _ROWS) -> Image.Image:
        """A picture of the first items with their sources, their sum and the residual."""
        from basis.plots.panels import separation_panel

        if not self.drawable:
            raise BasisError(
                f"sources of shape {tuple(self.sources.shape[2:])} cannot be drawn; pictures and "
                "sound can"
            )

        def first(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[:rows]

        priors = " and ".join(dict.fromkeys(p["name"] for p in self.settings["priors"]))
        return separation_panel(
            self.observation[:rows],
            self.sources[:rows],
            self.mixing.select(slice(rows)),
            truth=first(self.truth),
            names=[printable(name) for name in self.item_names[:rows]],
            title=f"prior {priors}, {self.evaluations} evaluations",
            value_range=self.value_range,
            plausibility=first(self.plausibility),
            std=first(self.std),
        )

    @property
    def drawable(self) -> bool:
        """Whether there is a picture of the sources: they are images or sound."""
        return self.sources.ndim in (4, 5)

    def show(self, rows: int = _ROWS) -> None:
        """Shows the panel: in the notebook, or in the system's picture viewer."""
        panel = self.panel(rows)
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            panel.show()
            return
        if get_ipython() is None:
            panel.show()
        else:
            display(panel)

    def _repr_png_(self) -> bytes | None:
        """The panel, for notebooks."""
        if not self.drawable:
            return None
        data = io.BytesIO()
        self.panel(6).save(data, "png")
        return data.getvalue()

    def save(self, folder: str | Path, **record: Any) -> Path:
        """Writes the result to a folder and returns it.

        The folder gets every source as a picture, the arrays (sources.npz), panel.png, samples.png
        and trajectory.png if there are samples or a trajectory, and run.json. Files of an earlier
        run in the folder are replaced or removed.

        Args:
            folder: Where to write; it is created.
            record: Additional entries of run.json.
        """
        return save_result(self, folder, record)

    def reordered(self, truth: Tensor) -> Result:
        """The result with exchangeable sources in the order that fits the true sources best."""
        per_item = isinstance(self.mixing, PerItemMixing)
        priors = self.settings["priors"]
        alike = torch.tensor([[a == b for b in priors] for a in priors])
        allowed = alike if per_item else self.exchangeable  # each source brings its alpha along
        distance = metrics.squared_distances(self.sources, truth)
        distance = distance + (distance.sum() + 1) * (~allowed).to(distance)
        order = metrics.best_permutation(-distance)

        def sort(x: Tensor | None, samples: bool = False) -> Any:
            if x is None:
                return None
            rows = zip(x, order, strict=True)
            return torch.stack([one[:, o] if samples else one[o] for one, o in rows])

        alphas = sort(self.alphas)
        return replace(
            self,
            sources=sort(self.sources),
            samples=sort(self.samples, samples=True),
            alphas=alphas,
            source_energies=sort(self.source_energies),
            mixing=PerItemMixing(alphas) if per_item else self.mixing,
            truth=truth,
        )


def check_output(folder: str | Path, result_names: Sequence[str], sources: int, size: int) -> None:
    """Raises before a long run if its result could not be written to a folder.

    Args:
        folder: Where the result will be saved.
        result_names: The names of the items.
        sources: The number of sources.
        size: The size of the arrays in bytes, approximately.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise BasisError(f"{folder} is a file; the output must be a folder")
    RunFolder(folder).refuse_job()
    for name in result_names:
        for i in range(sources):
            check_replaceable(folder / f"{name}-source{i + 1}.png")
    for name in ("sources.npz", "panel.png", "run.json"):
        check_replaceable(folder / name)
    check_disk_space(folder, size)


def save_result(result: Result, folder: str | Path, record: Mapping[str, Any]) -> Path:
    """Writes a result; see `Result.save`."""
    from basis.plots.drawing import to_picture, write_picture
    from basis.plots.panels import samples_panel, trajectory_panel

    if Path(folder).exists() and not Path(folder).is_dir():
        raise BasisError(f"{folder} is a file; save takes a folder")
    run = RunFolder(folder)
    run.refuse_job()
    value_range, samples = result.value_range, result.samples
    if result.sources.ndim == 5:
        for item, name in enumerate(result.item_names):
            for i, image in enumerate(result.sources[item], start=1):
                write_picture(run.path(f"{name}-source{i}.png"), to_picture(image, value_range))
            for number, sample in enumerate(samples[item] if samples is not None else (), start=1):
                for i, image in enumerate(sample, start=1):
                    path = run.path(f"{name}-sample{number:02d}-source{i}.png")
                    write_picture(path, to_picture(image, value_range))
    arrays = {
        "observation": result.observation,
        "sources": result.sources,
        "samples": samples,
        "alphas": result.alphas,
        "truth": result.truth,
    }
    with whole_file(run.path("sources.npz")) as temporary, open(temporary, "wb") as file:
        known: Any = {name: x.cpu().numpy() for name, x in arrays.items() if x is not None}
        np.savez_compressed(file, **known)
    if result.drawable:
        names = [printable(name) for name in result.item_names[:_ROWS]]
        write_picture(run.path("panel.png"), result.panel())
        if samples is not None and samples.shape[1] > 1:
            modes = [
                {i: rank for rank, mode in enumerate(one, start=1) for i in mode.members}
                for one in (result.modes or [])[:_ROWS]
            ]
            panel = samples_panel(
                result.observation[:_ROWS],
                samples[:_ROWS],
                modes=modes,
                names=names,
                value_range=value_range,
            )
            write_picture(run.path("samples.png"), panel)
        if result.trajectory:
            states = {sigma: x[:_ROWS, 0] for sigma, x in result.trajectory.items()}
            observed = result.mixing.observe(result.observation)[:_ROWS]
            panel = trajectory_panel(observed, states, names=names, value_range=value_range)
            write_picture(run.path("trajectory.png"), panel)
    entries: dict[str, Any] = {
        **record,
        "seed": result.seed,
        "evaluations": result.evaluations,
        "seconds": round(result.seconds, 3),
        "settings": result.settings,
        "items": item_records(result),
    }
    scores = _scores(result)
    if scores is not None:
        entries[scores[0].lower()] = vars(metrics.summarize(scores[1]))
    run.finish(entries)
    return Path(folder)


def item_records(result: Result) -> list[dict[str, Any]]:
    """What run.json and the stores of jobs say of every item."""
    rows: list[dict[str, Any]] = [
        {"name": name, "residual": residual}
        for name, residual in zip(result.item_names, result.residual.tolist(), strict=True)
    ]
    plausibility = [None] * len(rows) if result.plausibility is None else result.plausibility
    for row, value, warning in zip(rows, plausibility, result.warnings, strict=True):
        row["plausibility"] = None if value is None else round(float(value), 4)
        if warning:
            row["warning"] = warning
    if result.alphas is not None:
        for row, alphas in zip(rows, result.alphas.tolist(), strict=True):
            row["alphas"] = [round(a, 4) for a in alphas]
    if result.samples is not None and result.samples.shape[1] > 1:
        for row, modes in zip(rows, result.modes or (), strict=True):
            row["modes"] = [
                {"weight": mode.weight, "samples": [i + 1 for i in mode.members]} for mode in modes
            ]
    scores = _scores(result)
    if scores is not None:
        for row, score in zip(rows, scores[1].tolist(), strict=True):
            row[scores[0].lower()] = score
    return rows


def summary(result: Result) -> list[str]:
    """What `print(result)` says, line by line."""
    count, k = result.sources.shape[:2]
    names = ", ".join(result.names)
    lines = [
        f"{_count(count, 'observation')}, {_count(k, 'source')} ({names}), "
        f"{result.evaluations} evaluations each, {result.seconds:.1f} s"
    ]
    scores = _scores(result)
    if scores is not None:
        lines.append(f"{scores[0]} {metrics.summarize(scores[1])} dB{_trivial(result)}")
    if result.alphas is not None and (result.identifiable is not None or result.counts is not None):
        for name, alphas in list(zip(result.item_names, result.alphas.tolist(), strict=True)):
            found = [a for a in alphas if a]
            values = " ".join(f"{a:.3f}" for a in found)
            lines.append(f"{printable(name)}: {_count(len(found), 'source')}, alphas {values}")
            if len(lines) > _ROWS and count > _ROWS:
                lines.append(f"{count - _ROWS} more in run.json")
                break
    low, high = result.value_range
    worst = result.residual.max().item()
    if low is not None and high is not None:
        lines.append(f"residual at most {255 * worst / (high - low):.2f}/255 rms")
    else:
        lines.append(f"residual at most {worst:.3g} rms")
    if result.plausibility is None:
        lines.append("plausibility unknown (basis.check tests the prior)")
    else:
        least, most = result.plausibility.min().item(), result.plausibility.max().item()
        shown = f"{least:.2g}" if count == 1 else f"{least:.2g} to {most:.2g}"
        lines.append(
            f"plausibility {shown} (whether each source looks like a signal the prior knows, not "
            "whether the split is right)"
        )
    several = [
        (name, modes)
        for name, modes in zip(result.item_names, result.modes or (), strict=False)
        if len(modes) > 1
    ]
    for name, modes in several[:_LINES]:
        weights = ", ".join(f"{m.weight:.2f}" for m in modes if m.weight >= _MINOR)
        lines.append(f"{printable(name)}: {len(modes)} modes, weights {weights}")
    warned = [(n, w) for n, w in zip(result.item_names, result.warnings, strict=True) if w]
    for name, warning in warned[:_LINES]:
        lines.append(f"warning: {printable(name)}: {warning}")
    for more, what in ((len(several), "several modes"), (len(warned), "warnings")):
        if more > _LINES:
            lines.append(f"{more - _LINES} more items with {what} in run.json")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def _trivial(result: Result) -> str:
    """The score of the trivial baseline, the observation divided by the sum of the alphas."""
    if result.alphas is None or result.truth is None or result.alphas.sum(dim=1).min() <= 0:
        return ""
    total = result.alphas.sum(dim=1).to(result.observation)
    share = result.observation / total.view(-1, *[1] * (result.observation.ndim - 1))
    if share.shape[1:] != result.truth.shape[2:]:
        return ""
    baseline = replace(result, sources=share[:, None].expand_as(result.truth))
    scores = _scores(baseline)
    return "" if scores is None else f", trivial baseline {scores[1].mean().item():.2f} dB"


def _scores(result: Result) -> tuple[str, Tensor] | None:
    """PSNR, or SNR for unbounded signals, of every item in dB, if the true sources are known."""
    low, high = result.value_range
    if result.truth is None:
        return None
    if low is None or high is None:
        return "SNR", metrics.snr(result.sources, result.truth)
    return "PSNR", metrics.psnr(result.sources, result.truth, (low, high))
