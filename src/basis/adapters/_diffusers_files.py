"""Files of diffusers: a model and its scheduler from their configurations and weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._reading import read_json
from basis._texts import one_line
from basis._weights import build_fitting, put_weights, read_weights
from basis.adapters._diffusers import DiffusersDenoiser

WEIGHTS = "diffusion_pytorch_model"
MOST_STEPS = 100_000
"""Time steps that a scheduler may have: each is a row of its tables, and most have 1,000."""
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
    steps = scheduler.get("num_train_timesteps", 1000)
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise BasisError(
            f"num_train_timesteps of a scheduler must be from 1 to {MOST_STEPS:,}, "
            f"not {steps!r:.40}"
        )
    made = getattr(diffusers, name, None) if name.endswith("Scheduler") else None
    if made is None:
        raise BasisError(f"scheduler {name!r} is not one of diffusers' own")
    try:
        model = diffusers.UNet2DModel.from_config(dict(network))
        return DiffusersDenoiser(model, made.from_config(dict(scheduler)), _black_and_white(pixels))
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # theirs, on configurations that do not go together
        raise BasisError(f"diffusers cannot build this model: {one_line(error)}") from error


def _black_and_white(pixels: Any) -> tuple[float, float] | None:
    if not pixels:
        return None
    black, white = (float(value) for value in pixels)
    if not -1e6 < black < white < 1e6:
        raise ValueError(f"pixels must be [black, white] with white above black, not {pixels}")
    return black, white


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
    configs = _read_json(model), _read_json(scheduler)
    refusal = f"the weights in {model.parent} do not fit its config.json"
    weights = read_weights(model.parent, WEIGHTS)
    shapes = {n: t.shape for n, t in weights.items()}
    module = build_fitting(lambda: build_diffusers(*configs, pixels), shapes, refusal)
    put_weights(module.network, weights, refusal)
    return module


def _read_json(path: Path) -> dict[str, Any]:
    value = read_json(path, "a configuration")
    if not isinstance(value, dict):
        raise BasisError(f"{path} does not hold a configuration")
    return value
