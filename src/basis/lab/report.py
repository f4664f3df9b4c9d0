"""The report: sections with tables and pictures, as one HTML file and as Markdown."""

from __future__ import annotations

import base64
import importlib
import io
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from basis import metrics, plots
from basis._version import __version__
from basis.errors import BasisError, markdown_code
from basis.files import folder_lock, write_text
from basis.lab import TABLES
from basis.lab.context import Context, MissingRequirement, Separated
from basis.mixings.mixing import Mixing
from basis.plots.charts import Table

if TYPE_CHECKING:
    from PIL import Image

SIZES = {"quick": 0.03, "full": 1.0, "whole": 10.0}
"""Named sizes, as fractions of the number of mixtures in the full version.

With "whole", tables of photos measure as many images as the test set has; others are as "full".
"""


@dataclass
class Section:
    """One table or figure of the report.

    Attributes:
        name, title: As in `TABLES`.
        text: Paragraphs.
        tables: Tables of text.
        pictures: Captions and PNG files.
        settings: What it was computed with.
        seconds, evaluations: What computing it took, now or when the cache was filled.
    """

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[tuple[str, bytes]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    evaluations: int = 0

    def add_picture(self, caption: str, picture: Image.Image) -> None:
        """Adds a picture."""
        file = io.BytesIO()
        picture.save(file, format="PNG")
        self.pictures.append((caption, file.getvalue()))

    def add_panel(
        self, caption: str, truth: Tensor, sources: Tensor, mixing: Mixing, **options: Any
    ) -> None:
        """Adds a picture of separations with the truth, one mixture per row.

        Args:
            truth, sources: (rows, k, channels, height, width).
            mixing: How the mixtures were made.
            options: Further arguments of `separation_panel`.
        """
        options = {"cell": 84} | options
        panel = plots.separation_panel(mixing(truth), sources, mixing, truth=truth, **options)
        self.add_picture(caption, panel)

    def add_cost(self, done: Separated) -> None:
        """Adds the seconds and evaluations of a computation."""
        self.seconds += done.seconds
        self.evaluations += int(done.evaluations.sum())


def mean_and_error(values: Tensor | Sequence[float], digits: int = 2) -> str:
    """Mean ± standard error."""
    s = metrics.summarize(torch.as_tensor(values))
    return f"{s.mean:.{digits}f} ± {s.stderr:.{digits}f}"


def percentage(mask: Tensor) -> str:
    """The fraction of a mask that is true, in percent."""
    return f"{mask.float().mean().item():.0%}"


def resolve_size(size: str | float) -> float:
    """A size by name or as a fraction above 0, as a fraction."""
    try:
        fraction = float(SIZES.get(size, size) if isinstance(size, str) else size)
    except ValueError:
        fraction = 0.0
    largest = max(SIZES.values())
    if not 0 < fraction <= largest:
        raise BasisError(
            f"size must be {', '.join(SIZES)}, or a number above 0 and at most {largest:g}, "
            f"not {size}"
        )
    return fraction


def compute_table(name: str, ctx: Context) -> Section:
    """Computes one table; if a prior or a package is missing, its text says which."""
    module, title = TABLES[name]
    tables = importlib.import_module(f"basis.lab.tables.{module}")
    section = Section(name, title)
    try:
        getattr(tables, name.replace("-", "_"))(ctx, section)
    except MissingRequirement as missing:
        section.text.append(str(missing))
    section.settings = ctx.settings() | section.settings
    return section


def build_report(
    names: Sequence[str],
    ctx: Context,
    out: str | Path,
    *,
    size: str | float = "quick",
    command: str = "basis lab reproduce",
    on_section: Callable[[Section], None] | None = None,
) -> list[Section]:
    """Computes tables and figures and writes `report.html` and `tables.md`.

    Both files are written again after every section. Only one process at a time may use a folder.

    Args:
        names: Names in `TABLES`, or "all".
        ctx: What they are computed with.
        out: The folder of the two files.
        size: "quick", "full", "whole" or a fraction of the full version.
        command: The command line that the report shows.
        on_section: Called with every section that is done.
    """
    chosen = list(TABLES) if "all" in names else list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        raise BasisError(f"unknown table {unknown[0]!r}; the tables are all, {', '.join(TABLES)}")
    ctx = ctx.with_size(resolve_size(size))
    _template()  # a missing package is reported before any work
    sections: list[Section] = []
    with folder_lock(out):
        for name in chosen:
            section = compute_table(name, ctx)
            sections.append(section)
            write_report(sections, Path(out) / "report.html", command=command)
            write_text(Path(out) / "tables.md", tables_markdown(sections, command=command))
            if on_section is not None:
                on_section(section)
    return sections


def write_report(sections: Sequence[Section], path: str | Path, *, command: str) -> Path:
    """Writes the HTML file: the sections in order, and the command line."""
    text = _template().render(
        sections=sections,
        command=command,
        versions=f"basis {__version__}, {_versions()}",
        time=_time(sum(s.seconds for s in sections)),
        evaluations=f"{sum(s.evaluations for s in sections):,}",
    )
    write_text(path, text + "\n")
    return Path(path)


def tables_markdown(sections: Sequence[Section], *, command: str) -> str:
    """The tables and texts without pictures."""
    parts = [f"Made by {markdown_code(command)}, basis {__version__}, {_versions()}.\n"]
    for section in sections:
        if section.tables:
            parts += [f"## {section.title}\n", *(table.markdown() for table in section.tables)]
            parts += [f"{text}\n" for text in section.text]
            parts.append(f"{_origin(section)}\n")
    return "\n".join(parts)


def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise BasisError(
            "the report needs jinja2: pip install 'basis-separation[reproduce]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("basis.lab", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    environment.filters["origin"] = _origin
    return environment.get_template("report.html.j2")


def _origin(section: Section) -> str:
    """Command, cost and settings of a section."""
    return (
        f"basis lab reproduce {section.name}: {_time(section.seconds)}, {section.evaluations:,} "
        f"network evaluations. Settings: {json.dumps(section.settings)}."
    )


def _versions() -> str:
    return f"torch {torch.__version__}, Python {platform.python_version()}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
