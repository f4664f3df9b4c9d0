"""The files of a training folder: its state and its log."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis._errors import BasisError
from basis._files import whole_file

STATE = "state.safetensors"
PREVIOUS = "state-before.safetensors"
LOG = "log.jsonl"


def read_state(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings of a training folder's state, and its tensors by name, of any shape.

    Where the state is damaged, the one before is used, with a warning.
    """
    path, previous = Path(folder) / STATE, Path(folder) / PREVIOUS
    try:
        return _read(path)
    except BasisError as error:
        if not previous.is_file():
            raise
        try:
            found = _read(previous)
        except BasisError:
            raise error from None
        print(
            f"basis: warning: {error}; going on from the state before it, step {found[0]['step']}",
            file=sys.stderr,
        )
        return found


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            text = metadata["training"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        # States of earlier versions have no checksum.
        if metadata.get("sha256", "") not in ("", _checksum(text, tensors)):
            raise BasisError(f"{path} is damaged: its checksum is not the one it was written with")
        return dict(json.loads(text)), tensors
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BasisError):
            raise
        raise BasisError(f"{path} is not a training state: {error}") from error


def read_meta(folder: str | Path) -> dict[str, Any]:
    """The settings of a training folder's state without its tensors; empty where none is.

    Where the state is damaged, those of the one before.
    """
    for path in (Path(folder) / STATE, Path(folder) / PREVIOUS):
        if path.exists():
            try:
                with safe_open(path, framework="pt") as file:
                    return dict(json.loads(file.metadata()["training"]))
            except (OSError, SafetensorError, KeyError, TypeError, ValueError):
                continue
    if not (Path(folder) / STATE).exists():
        return {}
    return read_state(folder)[0]  # which says what is wrong


def write_state(folder: Path, meta: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes a training folder's state, whole or not at all, and keeps the one before."""
    own = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    text = json.dumps(meta)
    with whole_file(folder / STATE) as path:
        save_file(own, path, {"training": text, "sha256": _checksum(text, own)})
        _keep(folder / STATE, folder / PREVIOUS)


def _keep(state: Path, previous: Path) -> None:
    """Gives a state a second name, under which it stays when it is replaced."""
    if not state.exists():
        return
    with whole_file(previous) as second:
        second.unlink()
        try:
            os.link(state, second)
        except OSError:  # a file system without links
            shutil.copyfile(state, second)


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
