"""What every plot and every table of the package begins and ends with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#3b5bdb", "#c2255c", "#2b8a3e", "#e8590c")


@dataclass(frozen=True)
class Table:
    """Rows of text under a header."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """The table as the docs show it."""
        lines = (self.header, ("---",) * len(self.header), *self.rows)
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def new_figure(
    width: float, height: float, columns: int = 1, **more: Any
) -> tuple[Figure, list[Any]]:
    """A figure with axes side by side, in the manner of all others; no window is ever asked for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, columns, squeeze=False, **more)[0])
    for ax in axes:
        ax.grid(alpha=0.25, which="both")
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def level_line(ax: Any, level: float, text: str) -> None:
    """A dotted line over the whole width, with what it is."""
    ax.axhline(level, color="0.5", lw=1, ls=":")
    ax.annotate(
        text, (0.02, level), xycoords=ax.get_yaxis_transform(), xytext=(0, 3),
        textcoords="offset points", fontsize=8, color="0.4",
    )  # fmt: skip


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Writes a figure as PNG, whole or not at all."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    return Path(path)


def figure_png(figure: Figure) -> bytes:
    """The same in memory."""
    file = io.BytesIO()
    figure.savefig(file, dpi=130, format="png")
    return file.getvalue()
