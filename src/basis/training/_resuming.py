"""What a run must have in common with the state it goes on from, and what it takes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.training._config import TrainConfig

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
