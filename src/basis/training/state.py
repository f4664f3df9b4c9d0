"""The files of a training folder: its state and its log."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis.errors import BasisError
from basis.files import check_regular, parse_json, read_text, reading, whole_file
from basis.settings import setting, settings_from
from basis.training.config import TrainConfig

STATE = "state.safetensors"
PREVIOUS = "state-previous.safetensors"
LOG = "log.jsonl"
RESUMABLE = ("images", "hours", "cooldown")
"""Settings that a resumed run may change: how long it continues and how it ends."""
_FORMAT = 2


@dataclass(frozen=True)
class StateInfo:
    """What a state says about its run.

    Attributes:
        config: The settings, as `TrainConfig` takes them.
        step, seconds: Steps and time so far.
        about: What else describes the run: its network, data and teacher.
        data: The fingerprint of its data.
    """

    config: dict[str, Any]
    step: int = setting(0, "steps so far")
    seconds: float = setting(0.0, "time so far", at_least=0.0)
    about: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    format: int = _FORMAT


def parse_info(text: str, path: Path) -> StateInfo:
    """What a state says about its run, checked."""
    entries = parse_json(text, path, "a training state")
    if not isinstance(entries, dict) or entries.get("format") != _FORMAT:
        raise BasisError(
            f"{path} was written by another version of basis and cannot be continued; continue it "
            "with that version or use another folder"
        )
    info: StateInfo = settings_from(StateInfo, entries, str(path))
    for name in ("config", "about", "data"):
        if not isinstance(getattr(info, name), dict):
            raise BasisError(f"{path}: {name} must be an object, not {entries[name]!r:.60}")
    settings_from(TrainConfig, info.config, f"{path}: config")
    return info


def read_state(folder: str | Path) -> tuple[StateInfo, dict[str, Tensor]]:
    """The state of a training folder: what it says about the run, and its tensors by name.

    If the state is damaged, the previous one is used, with a warning.
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
            f"basis: warning: {error}; continuing from the previous state, step {found[0].step}",
            file=sys.stderr,
        )
        return found


def read_info(folder: str | Path) -> StateInfo | None:
    """What the state of a training folder says about its run; None if there is no state."""
    return read_state(folder)[0] if (Path(folder) / STATE).exists() else None


def _read(path: Path) -> tuple[StateInfo, dict[str, Tensor]]:
    check_regular(path)
    with reading(path, "a training state"), safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if "training" not in metadata:
            raise BasisError(f"{path} is not a training state")
        info = parse_info(metadata["training"], path)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if metadata.get("sha256") != _checksum(metadata["training"], tensors):
        raise BasisError(f"{path} is damaged: its checksum is wrong")
    return info, tensors


def write_state(folder: Path, info: StateInfo, tensors: Mapping[str, Tensor]) -> None:
    """Writes a training folder's state atomically and keeps the previous one."""
    own = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    text = json.dumps(asdict(info))
    state = folder / STATE
    with whole_file(state) as path:
        save_file(own, path, {"training": text, "sha256": _checksum(text, own)})
        if state.exists():
            with whole_file(folder / PREVIOUS) as second:
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


def check_same_run(
    folder: Path, saved: StateInfo, config: TrainConfig, teacher: Any, data: Mapping[str, Any]
) -> None:
    """Raises unless a run continues with the settings, the teacher and the data it began with."""
    before = TrainConfig(**saved.config)
    resumed = replace(before, **{name: getattr(config, name) for name in RESUMABLE})
    was = asdict(resumed) | {"teacher": saved.about.get("teacher")}
    now = asdict(config) | {"teacher": teacher}
    changed = _differences(was, now)
    if changed:
        raise BasisError(
            f"{folder} was trained with other settings ({', '.join(changed)}); continue with the "
            f"same ones (only {', '.join(RESUMABLE)} may change) or use another folder"
        )
    changed = _differences({k: v for k, v in saved.data.items() if k != "sha256"}, data)
    if not changed and saved.data.get("sha256") != data["sha256"]:
        changed = ["the same number of images with other values"]
    if changed:
        raise BasisError(
            f"{folder} was trained on other data ({', '.join(changed)}); use another folder"
        )


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [f"{k} {was[k]} -> {now.get(k)}" for k in was if was[k] != now.get(k)]


def shaped(saved: Tensor, like: Tensor) -> Tensor:
    """The saved tensor, if it has the shape of the one it is for."""
    if saved.shape != like.shape:
        raise ValueError(f"a tensor has shape {tuple(saved.shape)}, not {tuple(like.shape)}")
    return saved


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restores the moments of an optimizer from the tensors of a state.

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


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a training log in order; a row cut off by a crash is left out."""
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
    """Whether the entries of a row that a plot and a resumed run use have the right types."""
    if not isinstance(row, dict) or not isinstance(row.get("held_out", {}), dict):
        return False
    numbers = [row.get("step"), row.get("images"), row.get("loss", 0.0)]
    numbers += row.get("held_out", {}).values()
    return isinstance(row.get("of", ""), str) and all(
        isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < 1e30 for n in numbers
    )


def append_log(folder: Path, row: Mapping[str, Any]) -> None:
    """Adds a row to a training log."""
    if (folder / LOG).exists():
        check_regular(folder / LOG)
    with open(folder / LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def trim_log(folder: Path, step: int) -> None:
    """Removes the rows after the last saved state.

    A symbolic link in place of the log is replaced by a file.
    """
    rows = read_log(folder)
    kept = [row for row in rows if row["step"] <= step]
    if len(kept) < len(rows) or (folder / LOG).is_symlink():
        with whole_file(folder / LOG) as path:
            path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
