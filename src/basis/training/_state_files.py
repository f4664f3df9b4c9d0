"""The files of a training folder: its state and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis._errors import BasisError
from basis._files import whole_file

STATE = "state.safetensors"
LOG = "log.jsonl"


def read_state(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and tensors of a training folder's state."""
    path = Path(folder) / STATE
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads(file.metadata()["training"])
            return meta, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise BasisError(f"{path} is not a training state: {error}") from error


def read_meta(folder: str | Path) -> dict[str, Any]:
    """The settings of a training folder's state without its tensors; empty where none is."""
    path = Path(folder) / STATE
    if not path.exists():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            return dict(json.loads(file.metadata()["training"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BasisError(f"{path} is not a training state: {error}") from error


def write_state(folder: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a training folder's state, whole or not at all."""
    own = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    with whole_file(folder / STATE) as path:
        save_file(own, path, {"training": json.dumps(meta)})


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a training log, in order; a row cut off by a crash is left out."""
    path = Path(folder) / LOG
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def append_log(folder: Path, row: Mapping[str, Any]) -> None:
    """Adds a row to a training log."""
    with open(folder / LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def trim_log(folder: Path, step: int) -> None:
    """Drops the rows that an earlier run logged after its last saved state."""
    rows = read_log(folder)
    kept = [row for row in rows if row["step"] <= step]
    if len(kept) < len(rows):
        with whole_file(folder / LOG) as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
