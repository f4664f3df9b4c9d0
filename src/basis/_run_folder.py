"""A folder of results: what an earlier run left there and a new one does not replace is removed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._files import is_input, write_text
from basis._reading import read_json

__all__ = ["STORE", "RunFolder", "remove_files", "write_json"]

STORE = "store.json"
"""What a finished job says of its results, in their folder."""


class RunFolder:
    """Collects the names of a run's files, and ends with their list in the run's record.

    Only files that the earlier record names are removed, and only once everything new is written:
    a run that fails leaves the folder as it was.

    Args:
        folder: The folder; it is made with the first file.
        record: The name of the record in it.
    """

    def __init__(self, folder: str | Path, record: str = "run.json") -> None:
        self.folder, self.record = Path(folder), record
        self.names: set[str] = set()  # a list would be searched through for each of thousands

    def path(self, name: str) -> Path:
        """Where a file of this run goes."""
        self.names.add(name)
        return self.folder / name

    def finish(self, entries: Mapping[str, Any]) -> Path:
        """Writes the record with the list of files, then removes what an earlier run left over."""
        earlier = self.earlier()
        path = self.folder / self.record
        write_json(path, {**entries, "files": sorted(self.names)})
        remove_files(self.folder, earlier - {*self.names, self.record})
        return path

    def earlier(self) -> set[str]:
        """The files that an earlier run's record names."""
        return _listed(self.folder / self.record)

    def refuse_job(self) -> None:
        """Refuses a folder with the store of a job, whose files a run of its own would mix with."""
        if (self.folder / STORE).is_file():
            raise BasisError(
                f"{self.folder} holds the results of a job ({STORE}); give another --out"
            )


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of an earlier run, but none that is read now."""
    for name in names:
        old = folder / name
        if old.is_file() and not is_input(old):
            old.unlink()


def write_json(path: str | Path, record: Mapping[str, Any]) -> None:
    """Writes a record for scripts to read."""
    write_text(path, json.dumps(_strict(dict(record)), indent=2) + "\n")


def _listed(record: Path) -> set[str]:
    """The files that a record names, those of records that had no list from their mixtures."""
    try:
        entries = read_json(record, "a record")
        if "files" in entries:
            names = {str(name) for name in entries["files"]}
        else:
            k = int(entries["settings"]["mixing"]["sources"])
            rows = [row["name"] for row in entries["mixtures"]]
            names = {f"{name}-source{i + 1}.png" for name in rows for i in range(k)}
            names.add("states.png")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()  # no record, or none of ours
    return {name for name in names if name and Path(name).name == name}


def _strict(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
