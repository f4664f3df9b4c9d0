"""The report: one HTML file with all sections and pictures in it, and the tables as Markdown."""

from __future__ import annotations

import base64
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from basis._version import __version__
from basis.errors import BasisError, markdown_code
from basis.files import folder_lock, write_text
from basis.lab.context import Context
from basis.lab.definition import load_tables
from basis.lab.section import Section


def build_report(
    names: Sequence[str],
    ctx: Context,
    out: str | Path,
    *,
    size: str | float = "quick",
    command: str = "basis reproduce",
    on_section: Callable[[Section], None] | None = None,
) -> list[Section]:
    """Makes tables and figures and writes `report.html` and `tables.md`.

    Both files are written again after every section, so that there is something to read early. A
    second process in the same folder is refused.

    Args:
        names: Of tables, or "all".
        ctx: What they are made with.
        out: The folder of the two files.
        size: "quick", "full", "whole" or a share of the full version.
        command: The command line that the report shows.
        on_section: Called with every section that is done.
    """
    tables = load_tables()
    chosen = list(tables) if "all" in names else list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in tables]
    if unknown:
        raise BasisError(f"unknown table {unknown[0]!r}: give all, or some of {', '.join(tables)}")
    for name in chosen:
        tables[name].share(size)  # a wrong size is refused before any work
    _template()  # and so is a missing package
    sections: list[Section] = []
    with folder_lock(out):
        for name in chosen:
            section = tables[name].run(ctx, size)
            sections.append(section)
            write_report(sections, Path(out) / "report.html", command=command)
            write_text(Path(out) / "tables.md", tables_markdown(sections, command=command))
            if on_section is not None:
                on_section(section)
    return sections


def write_report(sections: Sequence[Section], path: str | Path, *, command: str) -> Path:
    """Writes the HTML file.

    Args:
        sections: What to show, in order.
        path: The file.
        command: The command line that made it.
    """
    text = _template().render(
        sections=sections,
        command=command,
        versions=f"basis {__version__}, {_versions()}",
        time=_time(sum(s.seconds for s in sections)),
        evaluations=f"{sum(s.evaluations for s in sections):,}",
    )
    write_text(path, text + "\n")
    return Path(path)


def _template() -> Any:
    """The template of the report."""
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


def tables_markdown(sections: Sequence[Section], *, command: str) -> str:
    """The tables alone, for a page of documentation."""
    parts = [f"Made by {markdown_code(command)}, basis {__version__}, {_versions()}.\n"]
    for section in sections:
        if section.tables:
            parts += [f"## {section.title}\n", *(table.markdown() for table in section.tables)]
            parts += [f"{text}\n" for text in section.text]
            parts.append(f"{_origin(section)}\n")
    return "\n".join(parts)


def _origin(section: Section) -> str:
    """How a section was made: command, cost and settings."""
    settings = f" Settings: {json.dumps(section.settings)}." if section.settings else ""
    return (
        f"basis reproduce {section.name}: {_time(section.seconds)}, {section.evaluations:,} "
        f"network evaluations.{settings}"
    )


def _versions() -> str:
    return f"torch {torch.__version__}, Python {platform.python_version()}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
