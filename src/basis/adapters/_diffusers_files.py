"""Files of diffusers: a model and its scheduler from their configurations and weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._weights import put_weights, read_weights
from basis.adapters._diffusers import DiffusersDenoiser

WEIGHTS = "diffusion_pytorch_model"
_PLACES = (
    ("unet/config.json", "scheduler/scheduler_config.json"),
    ("config.json", "scheduler_config.json"),
)


def find_pipeline(folder: Path) -> tuple[Path, Path] | None:
    """The configurations of model and scheduler in a folder of diffusers' layout, or None."""
    for place in _PLACES:
        model, scheduler = (folder / name for name in place)
        if model.is_file() and scheduler.is_file():
            return model, scheduler
    return None


def build_diffusers(
    network: Mapping[str, Any], scheduler: Mapping[str, Any], pixels: Any = None
) -> DiffusersDenoiser:
    """An untrained model from two configurations; nothing but diffusers' own classes is made."""
    diffusers = _library()
    kind = str(network.get("_class_name", "UNet2DModel"))
    if kind != "UNet2DModel":
        raise BasisError(f"a {kind} is not supported: unconditional UNet2DModel models are")
    name = str(scheduler.get("_class_name"))
    made = getattr(diffusers, name, None) if name.endswith("Scheduler") else None
    if made is None:
        raise BasisError(f"scheduler {name!r} is not one of diffusers' own")
    try:
        model = diffusers.UNet2DModel.from_config(dict(network))
        return DiffusersDenoiser(
            model, made.from_config(dict(scheduler)), tuple(pixels) if pixels else None
        )
    except (TypeError, ValueError, NotImplementedError) as error:
        raise BasisError(f"diffusers cannot build this model: {error}") from error


def _library() -> Any:
    try:
        import diffusers
    except ImportError as error:
        raise BasisError("this prior needs the diffusers package: pip install diffusers") from error
    return diffusers


def read_pipeline(folder: Path, pixels: Any = None) -> DiffusersDenoiser:
    """The model of a folder in diffusers' layout, with its weights."""
    if not folder.is_dir():
        raise BasisError(f"{folder}: there is no such folder")
    found = find_pipeline(folder)
    if found is None:
        raise BasisError(
            f"{folder} is no diffusers folder: it holds neither unet/config.json with scheduler/"
            "scheduler_config.json nor config.json with scheduler_config.json"
        )
    model, scheduler = found
    module = build_diffusers(_read_json(model), _read_json(scheduler), pixels)
    refusal = f"the weights in {model.parent} do not fit its config.json"
    put_weights(module.network, read_weights(model.parent, WEIGHTS), refusal)
    return module


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BasisError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise BasisError(f"{path} does not hold a configuration")
    return value
