"""The files of a training folder: its state and its log."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_regular, parse_json, read_text, reading, whole_file
from basis.settings import check_fields
from basis.training.config import TrainConfig

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
    check_regular(path)
    with reading(path, "a training state"), safe_open(path, framework="pt") as file:
        meta = _meta_of(file, path)
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # States of earlier versions have no checksum.
    if metadata.get("sha256", "") not in ("", _checksum(metadata["training"], tensors)):
        raise BasisError(f"{path} is damaged: its checksum is not the one it was written with")
    return meta, tensors


def _meta_of(file: Any, path: Path) -> dict[str, Any]:
    """What an open state says of its run, checked."""
    told = (file.metadata() or {}).get("training")
    if told is None:
        raise BasisError(f"{path} is not a training state: it says nothing of a training")
    meta: dict[str, Any] = parse_json(told, path, "a training state")
    check_meta(meta, path)
    return meta


def check_meta(meta: Any, path: Path) -> None:
    """Refuses what a state says of its run where it is not of the types and ranges it must be."""
    known = {f.name for f in fields(_Meta)}
    entries = {k: v for k, v in meta.items() if k in known} if isinstance(meta, dict) else meta
    check_fields(_Meta, entries, str(path))
    for name in ("config", "about", "data"):
        if not isinstance(entries.get(name, {}), dict):
            raise BasisError(f"{path}: {name} must be an object, not {entries[name]!r:.60}")
    check_fields(TrainConfig, entries["config"], f"{path}: config")


@dataclass(frozen=True)
class _Meta:
    """What the state of a training says of it."""

    config: dict[str, Any]
    step: int
    seconds: float = field(metadata={"at_least": 0.0})
    about: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)


def read_meta(folder: str | Path) -> dict[str, Any]:
    """The settings of a training folder's state without its tensors; empty where none is.

    Where the state is damaged, those of the one before.
    """
    path = Path(folder) / STATE
    if not path.exists():
        return {}
    check_regular(path)
    try:
        with reading(path, "a training state"), safe_open(path, framework="pt") as file:
            return _meta_of(file, path)
    except BasisError:
        if not (Path(folder) / PREVIOUS).is_file():
            raise
    return read_state(folder)[0]


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
    for line in read_text(path).splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_row(row):
            rows.append(row)
    return rows


def _is_row(row: Any) -> bool:
    """Whether a row has what a plot and a resumed run ask of it, in the types they ask for."""
    if not isinstance(row, dict):
        return False
    counts = all(_is_number(row.get(name)) for name in ("step", "images"))
    figures = row.get("held_out", {})
    return (
        counts
        and _is_number(row.get("loss", 0.0))
        and isinstance(row.get("of", ""), str)
        and isinstance(figures, dict)
        and all(_is_number(figure) for figure in figures.values())
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def append_log(folder: Path, row: Mapping[str, Any]) -> None:
    """Adds a row to a training log."""
    if (folder / LOG).exists():
        check_regular(folder / LOG)
    with open(folder / LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def trim_log(folder: Path, step: int) -> None:
    """Drops the rows that an earlier run logged after its last saved state.

    A link in place of the log becomes a file: what it leads to is not ours to write to.
    """
    rows = read_log(folder)
    kept = [row for row in rows if row["step"] <= step]
    if len(kept) < len(rows) or (folder / LOG).is_symlink():
        with whole_file(folder / LOG) as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


RESUMABLE = ("images", "cooldown")
"""Settings that a resumed run may change: how long it goes on and how it ends."""


def check_settings(folder: Path, saved: TrainConfig, config: TrainConfig) -> None:
    """Refuses settings that a resumed run may not change."""
    schedule = {name: getattr(config, name) for name in RESUMABLE}
    if replace(saved, **schedule) == config:
        return
    was, now = asdict(saved), asdict(config)
    changed = [f"{k} {was[k]} -> {now[k]}" for k in was if was[k] != now[k] and k not in schedule]
    raise BasisError(
        f"{folder} was trained with other settings ({', '.join(changed)}); resume with the same "
        f"ones (only {' and '.join(RESUMABLE)} may change) or use another folder"
    )


def check_data(
    folder: Path, meta: Mapping[str, Any], about: Mapping[str, Any], data: Mapping[str, Any]
) -> None:
    """Refuses to go on with other data than the state was trained on.

    Args:
        folder: The training folder.
        meta: What the state says.
        about: What the run says of itself.
        data: The fingerprint of the run's data.

    States of earlier versions have no fingerprint; what they say about themselves is compared, and
    the next state saved carries the fingerprint.
    """
    if "data" in meta:
        changed = _differences(meta["data"], data)
    else:
        changed = _differences(*(_known(source) for source in (meta.get("about", {}), about)))
    if changed:
        raise BasisError(
            f"{folder} was trained on other data ({', '.join(changed)}); use another folder"
        )


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    changed = [k for k in was if k in now and was[k] != now[k]]
    if changed == ["sha256"]:
        return ["the same number of images with other values"]
    return [f"{k} {was[k]} -> {now[k]}" for k in changed if k != "sha256"]


def _known(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's record of itself tells of its data."""
    architecture = _entries(about, "architecture")
    network = _entries(architecture, "network")
    known = dict(_entries(about, "data"))
    for key in ("channels", "size", "mean", "std"):
        value = architecture.get(key, network.get(key))
        if value is not None:
            known[key] = value
    return known


def _entries(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a record; an empty one where there is none."""
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def shaped(saved: Tensor, like: Tensor) -> Tensor:
    """The saved tensor, as long as it has the shape of the one it is for."""
    if saved.shape != like.shape:
        raise ValueError(f"a tensor has shape {tuple(saved.shape)}, not {tuple(like.shape)}")
    return saved


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Gives an optimizer back the moments that a state's tensors hold.

    Raises:
        ValueError: They are not those of the parameters that it trains.
    """
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".")
            own = tensor if key == "step" else shaped(tensor, trained[int(number)])
            state.setdefault(int(number), {})[key] = own
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
