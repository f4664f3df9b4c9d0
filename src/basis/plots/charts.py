"""Plots and tables of text. The one place that imports matplotlib, which is optional."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.errors import BasisError, markdown_cell
from basis.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


COLORS = ("#3b5bdb", "#c2255c", "#2b8a3e", "#e8590c")


@dataclass(frozen=True)
class Table:
    """Rows of text under a header."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """The table in Markdown, as the documentation shows it."""
        lines = (self.header, ("---",) * len(self.header), *self.rows)
        return "".join("| " + " | ".join(map(markdown_cell, line)) + " |\n" for line in lines)


def require_matplotlib() -> None:
    """Raises a one-line error where matplotlib is not installed: call it before long work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise BasisError("plots need matplotlib: pip install 'basis-separation[plots]'") from error


def new_figure(
    width: float, height: float, columns: int = 1, **more: Any
) -> tuple[Figure, list[Any]]:
    """A figure in the common style, with axes side by side; no window is opened.

    Args:
        width, height: In inches.
        columns: Number of axes.
        more: Further arguments of `Figure.subplots`.
    """
    require_matplotlib()
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
    """Draws a labelled dotted line over the whole width of the axes."""
    ax.axhline(level, color="0.5", lw=1, ls=":")
    ax.annotate(
        text, (0.02, level), xycoords=ax.get_yaxis_transform(), xytext=(0, 3),
        textcoords="offset points", fontsize=8, color="0.4",
    )  # fmt: skip


def log_scale(ax: Any) -> None:
    """Makes the x axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Writes a figure as PNG, whole or not at all."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    return Path(path)


def figure_png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, dpi=130, format="png")
    return file.getvalue()
