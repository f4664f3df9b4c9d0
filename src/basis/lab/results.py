"""The page of results: measured figures with the weights that they were measured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from basis.errors import BasisError
from basis.plots.charts import Table
from basis.store.folder import CARD, read_card
from basis.store.loading import EMBEDDED

EARLIER = "measured with earlier weights"
"""What a row says if the weights that ship have another checksum."""

_FIELDS = {
    "section", "task", "method", "measure", "ours", "count", "seed", "command", "version",
    "weights",
}  # fmt: skip
_OPTIONAL = {"trivial", "paper", "evaluations", "commit", "note"}


def shipped_checksums() -> dict[str, str]:
    """The SHA256 of the weights of every shipped prior, by name."""
    folders = [folder for folder in sorted(EMBEDDED.iterdir()) if (folder / CARD).is_file()]
    return {folder.name: read_card(folder).sha256 for folder in folders}


def is_current(row: Mapping[str, Any], shipped: Mapping[str, str]) -> bool:
    """Whether a row was measured with the weights that ship."""
    return all(shipped.get(name) == checksum for name, checksum in row["weights"].items())


def check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises if a row lacks an entry or has an unknown one."""
    for row in rows:
        missing, unknown = _FIELDS - set(row), set(row) - _FIELDS - _OPTIONAL
        if missing or unknown:
            what = f"lacks {', '.join(sorted(missing))}" if missing else ""
            what += f" has unknown {', '.join(sorted(unknown))}" if unknown else ""
            raise BasisError(f"the result {row.get('task', '?')!r} {what.strip()}")


def results_page(record: Mapping[str, Any], shipped: Mapping[str, str] | None = None) -> str:
    """The page in Markdown.

    Args:
        record: "title", "introduction" (paragraphs), "sections" (names to introductions) and
            "rows".
        shipped: Checksums of weights by the names of priors; those of the shipped priors by
            default.
    """
    shipped = shipped_checksums() if shipped is None else shipped
    rows = record["rows"]
    check_rows(rows)
    parts = [f"# {record['title']}\n", *(f"{text}\n" for text in record["introduction"])]
    for section, text in record["sections"].items():
        own = [row for row in rows if row["section"] == section]
        commands = dict.fromkeys(row["command"] for row in own)
        parts += [f"## {section}\n", f"{text}\n" if text else "", _table(own, shipped).markdown()]
        parts += ["\n".join(f"    {command}" for command in commands) + "\n"]
        notes = [
            f"{row['task']}, {row['method']}: {row['note']}.\n" for row in own if "note" in row
        ]
        parts += notes
    if any(not is_current(row, shipped) for row in rows):
        parts.append(f"† {EARLIER}.\n")
    names = sorted({name for row in rows for name in row["weights"]})
    lines = [(name, shipped.get(name, "does not ship")[:12]) for name in names]
    weights = Table(("prior", "SHA256 of the shipped weights"), lines)
    parts += ["## Weights\n", weights.markdown()]
    return "\n".join(part for part in parts if part)


def _table(rows: Sequence[Mapping[str, Any]], shipped: Mapping[str, str]) -> Table:
    """The rows of a section; empty columns are left out."""
    measures = {row["measure"] for row in rows}
    ours = "ours" if len(measures) > 1 else f"ours, {measures.pop()}"
    cells = [
        {
            "task": row["task"],
            "method": row["method"],
            "measure": row["measure"] if ours == "ours" else "",
            "trivial baseline": row.get("trivial", ""),
            "paper": row.get("paper", ""),
            ours: row["ours"] + ("" if is_current(row, shipped) else " †"),
            "evaluations": f"{row['evaluations']:,}" if "evaluations" in row else "",
            "mixtures": f"{row['count']:,}",
            "seed": str(row["seed"]),
            "version": row["version"] + (f" ({row['commit']})" if "commit" in row else ""),
        }
        for row in rows
    ]
    header = tuple(name for name in cells[0] if any(row[name] for row in cells))
    return Table(header, [tuple(row[name] for name in header) for row in cells])
