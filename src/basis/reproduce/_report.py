"""One page with everything on it: a single HTML file, pictures inside, that reads well on a screen and on paper."""

from __future__ import annotations

import base64
import html
import json
import platform
from collections.abc import Sequence
from pathlib import Path

from basis._figures import Table
from basis._files import write_text
from basis._version import __version__
from basis.reproduce._pieces import Piece

_STYLE = """
:root { --ink: #1c1e24; --muted: #6b7280; --line: #d6dae2; --accent: #c2255c; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink); margin: 0 auto;
  max-width: 60rem; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .6rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
p { max-width: 44rem; }
.muted, figcaption, .made { color: var(--muted); font-size: .86rem; }
nav a { margin-right: 1rem; color: var(--accent); text-decoration: none; white-space: nowrap; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { text-align: left; padding: .34rem 1.1rem .34rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; border-bottom: 2px solid var(--ink); }
.scroll { overflow-x: auto; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; display: block; }
@media print { body { font-size: 11px; max-width: none; padding: 0; } h2, figure, table { break-inside: avoid; }
  nav { display: none; } }
"""


def report(pieces: Sequence[Piece], path: str | Path, *, command: str) -> Path:
    """Writes the page.

    Args:
        pieces: What to show, in order.
        path: The HTML file.
        command: What made it.
    """
    links = " ".join(f'<a href="#{p.name}">{html.escape(p.title)}</a>' for p in pieces)
    body = "\n".join(_section(piece) for piece in pieces)
    evaluations = sum(p.evaluations for p in pieces)
    seconds = sum(p.seconds for p in pieces)
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Source separation with deep generative priors, reproduced</title><style>{_STYLE}</style></head><body>
<h1>Source separation with deep generative priors, reproduced</h1>
<p class="muted">The tables and figures of Jayaram and Thickstun, ICML 2020 (arXiv:2002.07942), made again with the priors of this
package. Figures in the column “paper” are copied from it; all others were measured by the command below.</p>
<p class="muted"><code>{html.escape(command)}</code><br>basis {__version__}, {_versions()}; {_time(seconds)} of computing,
{evaluations:,} network evaluations.</p>
<nav>{links}</nav>
{body}
</body></html>
"""
    write_text(path, text)
    return Path(path)


def tables_markdown(pieces: Sequence[Piece], *, command: str) -> str:
    """The tables alone, for a page of documentation."""
    parts = [f"Made by `{command}`, basis {__version__}, {_versions()}.\n"]
    for piece in pieces:
        if piece.tables:
            parts += [f"## {piece.title}\n", *(table.markdown() for table in piece.tables)]
            parts += [f"{text}\n" for text in piece.text]
            parts.append(f"{_made(piece)}\n")
    return "\n".join(parts)


def _made(piece: Piece) -> str:
    told = f" Settings: {json.dumps(piece.settings)}." if piece.settings else ""
    return (
        f"basis reproduce {piece.name}: {_time(piece.seconds)}, {piece.evaluations:,} network "
        f"evaluations.{told}"
    )


def _section(piece: Piece) -> str:
    parts = [f'<h2 id="{piece.name}">{html.escape(piece.title)}</h2>']
    parts += [f"<p>{html.escape(text)}</p>" for text in piece.text]
    parts += [_table(table) for table in piece.tables]
    for caption, data in piece.pictures:
        coded = base64.b64encode(data).decode()
        parts.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{coded}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    parts.append(f'<p class="made">{html.escape(_made(piece))}</p>')
    return "\n".join(parts)


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _versions() -> str:
    import torch

    return f"torch {torch.__version__}, Python {platform.python_version()}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
