"""A section of the report: one reproduced table or figure, with its text and pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from basis import metrics, plots
from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table

if TYPE_CHECKING:
    from PIL import Image


class _HasCost(Protocol):
    @property
    def seconds(self) -> float: ...
    @property
    def evaluations(self) -> int: ...


@dataclass
class Section:
    """One table or figure of the paper, reproduced.

    Attributes:
        name, title: As in its definition.
        text: Paragraphs.
        tables: Tables of text.
        pictures: Captions and PNG files.
        settings: What it was made with.
        seconds, evaluations: What it cost to compute, when it was computed.
    """

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[tuple[str, bytes]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    evaluations: int = 0

    def add_panel(
        self, caption: str, truth: Tensor, sources: Tensor, mixing: Mixing, **options: Any
    ) -> None:
        """Adds a picture of separations, a row each, beside the truth.

        Args:
            caption: Of the picture.
            truth, sources: (rows, k, channels, height, width).
            mixing: How the mixtures were made.
            options: Further arguments of `separation_panel`.
        """
        options = {"cell": 84} | options
        panel = plots.separation_panel(mixing(truth), sources, mixing, truth=truth, **options)
        self.pictures.append((caption, png(panel)))

    def add_cost(self, done: _HasCost) -> None:
        """Adds what a computation cost."""
        self.seconds += done.seconds
        self.evaluations += done.evaluations


def png(picture: Image.Image) -> bytes:
    """A picture as the bytes of a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()


def mean_and_error(values: Tensor | Sequence[float], digits: int = 2) -> str:
    """Mean and standard error, as a table shows them."""
    s = metrics.summarize(torch.as_tensor(values))
    return f"{s.mean:.{digits}f} ± {s.stderr:.{digits}f}"


def similarity(sources: Tensor, truth: Tensor) -> str:
    """Mean SSIM, as a table shows it; the package that computes it is optional."""
    try:
        return f"{metrics.ssim(sources, truth, permute=True).mean().item():.3f}"
    except BasisError:
        return "not installed"


def percentage(found: Tensor) -> str:
    """The share of a mask that is true, as a table shows it."""
    return f"{found.float().mean().item():.0%}"
