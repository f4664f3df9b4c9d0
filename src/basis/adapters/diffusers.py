"""diffusers: a pipeline, its folder, or a model with its scheduler as a prior."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from basis.adapters.weights import build_fitting, put_weights, read_weights
from basis.errors import BasisError
from basis.files import read_json
from basis.nn.diffusers import DiffusersDenoiser, build_diffusers
from basis.priors.denoiser import DenoiserPrior

WEIGHTS = "diffusion_pytorch_model"
_LAYOUTS = (
    ("unet/config.json", "scheduler/scheduler_config.json"),
    ("config.json", "scheduler_config.json"),
)


def from_diffusers(
    source: Any,
    scheduler: Any = None,
    *,
    size: int | None = None,
    model_range: tuple[float, float] | None = None,
    name: str | None = None,
    chunk: int = 64,
) -> DenoiserPrior:
    """A prior from a pipeline, from its folder, or from a model and its scheduler.

    Args:
        source: A pipeline (anything with `unet` and `scheduler`), a folder as `save_pretrained`
            writes it, or a `UNet2DModel`.
        scheduler: The scheduler that the model was trained with, if the source is a model.
        size: The side of the images, if the model's configuration does not have it.
        model_range: The model's values for 0 and 1; by default (-1, 1), and (0, 1) for NCSN++.
        chunk: Images per call at most.
    """
    if isinstance(source, str | Path):
        name = name or Path(source).name
        module = read_pipeline(Path(source), model_range)
    elif scheduler is not None:
        module = DiffusersDenoiser(source, scheduler, model_range)
    elif hasattr(source, "unet") and hasattr(source, "scheduler"):
        module = DiffusersDenoiser(source.unet, source.scheduler, model_range)
    else:
        raise BasisError("from_diffusers needs a pipeline, a folder, or a model and a scheduler")
    config = module.network.config
    sides = size or getattr(config, "sample_size", None)
    if not sides:
        raise BasisError(
            "the model's configuration has no sample_size: give the side of its images"
        )
    pair = list(sides) if isinstance(sides, list | tuple) else [sides, sides]
    if len(pair) != 2 or not all(type(side) is int and 1 <= side <= 65_536 for side in pair):
        raise BasisError(
            f"the model's sample_size must be a side of 1 to 65536, or two of them, not "
            f"{sides!r:.60}"
        )
    height, width = pair
    low, high = module.sigma_range
    shape = (config.in_channels, height, width)
    name = name or "diffusers"
    return DenoiserPrior(module, shape, low, high, name=name, chunk=chunk)


def find_pipeline(folder: Path) -> tuple[Path, Path] | None:
    """The configurations of model and scheduler in a folder of diffusers' layout, or None."""
    for names in _LAYOUTS:
        model, scheduler = (folder / name for name in names)
        if model.is_file() and scheduler.is_file():
            return model, scheduler
    return None


def read_pipeline(
    folder: Path, model_range: tuple[float, float] | None = None
) -> DiffusersDenoiser:
    """The model of a folder in diffusers' layout, with its weights."""
    found = find_pipeline(folder)
    if found is None:
        raise BasisError(
            f"{folder} is not a diffusers folder: it holds neither unet/config.json with scheduler/"
            "scheduler_config.json nor config.json with scheduler_config.json"
        )
    configs = [read_json(path, "a configuration") for path in found]
    for path, config in zip(found, configs, strict=True):
        if not isinstance(config, dict):
            raise BasisError(f"{path} does not hold a configuration")
    refusal = f"the weights in {found[0].parent} do not fit its config.json"
    weights = read_weights(found[0].parent, WEIGHTS)
    shapes = {n: t.shape for n, t in weights.items()}
    module = build_fitting(
        lambda: build_diffusers(configs[0], configs[1], model_range), shapes, refusal
    )
    put_weights(module.network, weights, refusal)
    return module
