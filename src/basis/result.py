"""What `separate` returns, and what it reports on the way."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from basis.errors import BasisError
from basis.files import RunFolder, whole_file
from basis.mixings.mixing import Mixing
from basis.plots.drawing import to_picture, write_picture
from basis.plots.panels import separation_panel
from basis.priors.card import LIKELY
from basis.search.uncertainty import Mode, central_interval, check_spread, find_modes

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Result:
    """What `separate` found.

    Attributes:
        sources: The separated sources in the priors' range, (batch, k, channels, *size): the chosen
            sample, or with an effort the mean about it.
        samples: Every sample drawn, (batch, samples, k, channels, *size), sources that can be
            exchanged in the order of `sources`; with an effort the draws that were asked for, or
            where none were the candidates of the first round.
        energies: What the choice was made by, (batch, candidates), in nats up to a constant; the
            least is the best. All zero where nothing was to be chosen.
        residual: Root mean square of m - A x for `sources`, (batch,).
        spent: Network evaluations spent on each mixture, all samples counted, (batch,).
        settings: Prior, mixing and sampler in full, with the versions that ran them.
        seed: The seed everything was drawn from.
        seconds: Time it took.
        exchangeable: Which sources have the same prior and weight in the mixture, so that they have
            no order of their own: (k, k) of bool.
        kept: States at the end of the noise levels asked for: sigma to (batch, samples, k, ...),
            not clamped.
        mixture: What was separated, (batch, *observed), as it was after conversions.
        mixing: How the sources make it.
        span: The bounds of the sources' values, None where there is none.
        drawn: Whether `samples` were drawn to their end; the candidates of a search were not, and
            tell modes but no deviations.
        plausibility: How plausible the sources are, (batch,), 0 to 1: how often sources separated
            from mixtures of the prior's own signals are as improbable. None where the prior has no
            typical energies to compare with.
        source_energies: What it was told by, (batch, k), in nats up to a constant, or None.
        remarks: A sentence for every mixture whose sources are not plausible, on what to check
            first; empty for the others.
        alphas: The weights of every mixture, (batch, k): those given, or estimated where they were
            unknown, 0 for a source that a mixture does not have. None where the mixing is no plain
            sum.
        alphas_known: Whether estimated weights can be known at all, (batch,) of bool: a prior that
            takes its sources at any scale leaves them open. None where none were estimated.
        counts: How many sources each mixture was found to have, (batch,), where that was unknown.
    """

    sources: Tensor
    samples: Tensor
    energies: Tensor
    residual: Tensor
    spent: Tensor
    settings: dict[str, Any]
    seed: int
    seconds: float
    exchangeable: Tensor
    kept: dict[float, Tensor] = field(default_factory=dict)
    mixture: Tensor | None = None
    mixing: Mixing | None = None
    span: tuple[float | None, float | None] = (None, None)
    drawn: bool = True
    plausibility: Tensor | None = None
    source_energies: Tensor | None = None
    remarks: tuple[str, ...] = ()
    alphas: Tensor | None = None
    alphas_known: Tensor | None = None
    counts: Tensor | None = None

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.sources.shape))
        return (
            f"Result(sources {shape}, {self.evaluations} evaluations per mixture, "
            f"{self.seconds:.1f} s)"
        )

    @property
    def evaluations(self) -> int:
        """Network evaluations spent per mixture: the mean over mixtures, rounded up."""
        return math.ceil(self.spent.double().mean().item())

    @property
    def plausible(self) -> Tensor | None:
        """Whether the sources are plausible, (batch,) of bool; None where it cannot be said."""
        return None if self.plausibility is None else self.plausibility >= LIKELY

    @property
    def mean(self) -> Tensor:
        """The mean over samples, (batch, k, channels, *size)."""
        return self.samples.mean(dim=1)

    @property
    def std(self) -> Tensor:
        """The standard deviation over samples, (batch, k, channels, *size)."""
        check_spread(self.samples.shape[1], self.drawn)
        return self.samples.std(dim=1)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Bounds between which each value lies with this probability, given the mixture.

        From 2 / (1 - level) - 1 samples on (19 for 90 %) they are order statistics, which need no
        distribution; with fewer, values are taken to be normal.

        Returns:
            Lower and upper bounds, (batch, k, channels, *size) each.
        """
        check_spread(self.samples.shape[1], self.drawn)
        return central_interval(self.samples, level)

    @property
    def modes(self) -> list[tuple[Mode, ...]]:
        """For every mixture the explanations that its samples fall into, the heaviest first."""
        spread = min(p["std"] for p in self.settings["priors"])
        return [find_modes(item, spread, self.exchangeable) for item in self.samples]

    def panel(self, rows: int = 24) -> Image.Image:
        """A picture of the first mixtures with their sources, their sum and the residual."""

        return result_panel(self, rows)

    def show(self, rows: int = 24) -> None:
        """Opens the panel in the system's viewer of pictures."""
        self.panel(rows).show()

    def save(self, folder: str | Path, names: Sequence[str] | None = None) -> Path:
        """Writes every source as a picture, all arrays (sources.npz), panel.png and run.json.

        Files of an earlier run in the same folder are replaced or removed.

        Args:
            folder: Where; it is made.
            names: What the files of each mixture are called; 01, 02, ... by default.
        """

        return save_result(self, folder, names)

    def _repr_png_(self) -> bytes | None:
        """The panel, for notebooks; None where the sources are neither pictures nor sound."""

        if not drawable(self):
            return None
        data = io.BytesIO()
        result_panel(self, 6).save(data, "png")
        return data.getvalue()


def has_draws(result: Result) -> bool:
    """Whether a result has several draws, which scatter."""
    return result.drawn and result.samples.shape[1] > 1


def verdict_rows(result: Result) -> list[dict[str, Any]]:
    """What a record says of every mixture's plausibility and modes."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(result.sources))]
    if result.plausibility is None or result.plausible is None:
        for row in rows:
            row["plausibility"] = None
    else:
        told = zip(
            rows,
            result.plausibility.tolist(),
            result.plausible.tolist(),
            result.remarks,
            strict=True,
        )
        for row, p, plausible, remark in told:
            row["plausibility"] = round(p, 4)
            row["plausible"] = plausible
            if remark:
                row["remark"] = remark
    if result.alphas is not None:
        for row, alphas in zip(rows, result.alphas.tolist(), strict=True):
            row["alphas"] = [round(a, 4) for a in alphas]
    if result.samples.shape[1] > 1:
        for row, modes in zip(rows, result.modes, strict=True):
            row["modes"] = [
                {"weight": mode.weight, "samples": [i + 1 for i in mode.members]} for mode in modes
            ]
    return rows


_SHOWN = 24  # mixtures in a panel


def result_panel(
    result: Result, rows: int = _SHOWN, names: Sequence[str] | None = None
) -> Image.Image:
    """The first mixtures with their sources, their sum and the residual."""
    if result.mixture is None or result.mixing is None:
        raise BasisError("this result does not know its mixture, and cannot be drawn")
    if not drawable(result):
        shape = tuple(result.sources.shape[2:])
        raise BasisError(f"sources of shape {shape} cannot be drawn; pictures and sound can")
    low, high = result.span
    return separation_panel(
        result.mixture[:rows],
        result.sources[:rows],
        result.mixing.select(slice(rows)),
        names=None if names is None else list(names[:rows]),
        low=low,
        high=high,
        plausibility=None if result.plausibility is None else result.plausibility[:rows],
        deviation=result.std[:rows] if has_draws(result) else None,
    )


def drawable(result: Result) -> bool:
    """Whether there is a picture of its sources: images or sound."""
    return result.sources.ndim in (4, 5) and result.mixture is not None


def save_result(result: Result, folder: str | Path, names: Sequence[str] | None = None) -> Path:
    """Writes sources as pictures, all arrays, a panel and a record; returns the folder."""
    count = len(result.sources)
    digits = max(2, len(str(count)))
    names = [f"{i + 1:0{digits}d}" for i in range(count)] if names is None else list(names)
    if len(names) != count or len(set(names)) < count or any(Path(n).name != n for n in names):
        raise BasisError(f"names must be {count} different names of files, without folders")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise BasisError(f"{folder} is a file; save takes a folder")
    run = RunFolder(folder)
    low, high = result.span
    if result.sources.ndim == 5:
        for name, item in zip(names, result.sources, strict=True):
            for i, image in enumerate(item):
                write_picture(run.path(f"{name}-source{i + 1}.png"), to_picture(image, low, high))
    arrays: dict[str, Any] = {"sources": result.sources, "samples": result.samples}
    if result.mixture is not None:
        arrays["mixture"] = result.mixture
    with whole_file(run.path("sources.npz")) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **{name: t.cpu().numpy() for name, t in arrays.items()})
    if drawable(result):
        write_picture(run.path("panel.png"), result_panel(result, names=names))
    run.finish(
        {
            "seed": result.seed,
            "evaluations_per_mixture": result.evaluations,
            "seconds": round(result.seconds, 3),
            "settings": result.settings,
            "mixtures": [
                {"name": n, "residual_rms": r, **told}
                for n, r, told in zip(
                    names, result.residual.tolist(), verdict_rows(result), strict=True
                )
            ],
        }
    )
    return Path(folder)
