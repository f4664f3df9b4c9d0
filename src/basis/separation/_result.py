"""What `separate` returns, and what it reports on the way."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from basis.mixings import Mixing
from basis.priors import LIKELY
from basis.separation._uncertainty import Mode, central_interval, check_spread, find_modes

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Progress:
    """Passed to a progress callback after every step.

    Attributes:
        done, total: Steps done of all, over all chunks.
        sigma: The noise level.
        state: The chains of the chunk that took the step, (mixtures, chains, k, channels, *size),
            noise and all; None where there are none to show. It is the sampler's own: read it in
            the callback, or copy it.
    """

    done: int
    total: int
    sigma: float
    state: Tensor | None = field(default=None, repr=False, compare=False)


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
        spread = min(p["spread"] for p in self.settings["priors"])
        return [find_modes(item, spread, self.exchangeable) for item in self.samples]

    def panel(self, rows: int = 24) -> Image.Image:
        """A picture of the first mixtures with their sources, their sum and the residual."""
        from basis.separation._result_files import result_panel

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
        from basis.separation._result_files import save_result

        return save_result(self, folder, names)

    def _repr_png_(self) -> bytes | None:
        """The panel, for notebooks; None where the sources are neither pictures nor sound."""
        from basis.separation._result_files import drawable, result_panel

        if not drawable(self):
            return None
        data = io.BytesIO()
        result_panel(self, 6).save(data, "png")
        return data.getvalue()
