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
_OPTIONAL = {"trivial", "paper", "evaluations", "median", "note"}


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
        parts += [f"## {section}\n", f"{text}\n" if text else ""]
        paper = any("paper" in row for row in own)
        header = ("task", "method", "measure", "trivial baseline", "ours")
        header += (*(("paper",) if paper else ()), "evaluations", "mixtures", "version")
        cells = [
            (
                row["task"],
                row["method"],
                row["measure"],
                row.get("trivial", ""),
                row["ours"] + ("" if is_current(row, shipped) else " †"),
                *((row.get("paper", ""),) if paper else ()),
                str(row.get("evaluations", "")),
                f"{row['count']:,}, seed {row['seed']}",
                row["version"],
            )
            for row in own
        ]
        parts.append(Table(header, cells).markdown())
        commands = dict.fromkeys(row["command"] for row in own)
        parts.append("\n".join(f"    {command}" for command in commands) + "\n")
        parts += [
            f"{row['task']}, {row['method']}: {row['note']}\n" for row in own if "note" in row
        ]
    if any(not is_current(row, shipped) for row in rows):
        parts.append(f"† {EARLIER}.\n")
    names = sorted({name for row in rows for name in row["weights"]})
    parts.append("## Weights\n")
    lines = [(name, shipped.get(name, "does not ship")[:12]) for name in names]
    parts.append(Table(("prior", "SHA256 of the shipped weights"), lines).markdown())
    return "\n".join(part for part in parts if part)
