"""diffusers: an unconditional `UNet2DModel` with its scheduler as a prior.

A scheduler says how its x_t relates to a clean image: x_t = sqrt(a_t) (x + s_t n) with
s_t = sqrt((1 - a_t) / a_t) for the VP family (DDPM, DDIM and the solvers that share their betas),
x_t = x + s n for VE (NCSN++). Noise levels map to s exactly; between two time indices the index is
interpolated in log s. Pixels of [-1, 1] are converted, which doubles sigma.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basis.adapters.pickled import build_fitting, put_weights, read_weights
from basis.errors import BasisError, one_line
from basis.files import read_json
from basis.priors.denoiser import DenoiserPrior
from basis.tensors import per_item

_VE = ("ScoreSdeVeScheduler",)
_EDM = ("EDMEulerScheduler", "EDMDPMSolverMultistepScheduler")
_PREDICTIONS = ("epsilon", "sample", "v_prediction")


class DiffusersDenoiser(nn.Module):
    """A `UNet2DModel` as a denoiser of images in [0, 1].

    Args:
        network: The model.
        scheduler: The scheduler it was trained with.
        model_range: Its values for 0 and 1.
    """

    table: Tensor

    def __init__(
        self, network: Any, scheduler: Any, model_range: tuple[float, float] | None = None
    ) -> None:
        super().__init__()
        if getattr(network.config, "num_class_embeds", None) or network.config.class_embed_type:
            raise BasisError("a class-conditional diffusers model is no prior of images alone")
        self.network = network
        self.scheduler = {k: v for k, v in dict(scheduler.config).items() if _plain(v)}
        kind = type(scheduler).__name__
        self.scheduler["_class_name"] = kind
        self.family = "ve" if kind in _VE else "edm" if kind in _EDM else "vp"
        self.prediction = self.scheduler.get("prediction_type", "epsilon")
        if self.prediction not in _PREDICTIONS:
            raise BasisError(
                f"prediction type {self.prediction!r} of a scheduler is unknown; "
                f"known are {', '.join(_PREDICTIONS)}"
            )
        # Only the NCSN++ family lives in [0, 1]: its pipeline clamps there.
        black, white = model_range or ((0.0, 1.0) if self.family == "ve" else (-1.0, 1.0))
        self.model_range = (float(black), float(white))
        table = self._noise_table(scheduler, kind)
        if len(table) < 2 or not table.isfinite().all() or not (table.diff() > 0).all():
            raise BasisError(
                f"the noise levels of scheduler {kind} do not rise from one to the next"
            )
        self.register_buffer("table", table, persistent=False)

    def _noise_table(self, scheduler: Any, kind: str) -> Tensor:
        """log s of every time index for the VP family, of the two ends for the others."""
        if self.family != "vp":
            ends = (scheduler.config.sigma_min, scheduler.config.sigma_max)
            return torch.tensor(ends, dtype=torch.float64).log()
        kept = getattr(scheduler, "alphas_cumprod", None)
        if kept is None:
            raise BasisError(
                f"scheduler {kind} is not supported: one with alphas_cumprod (DDPM, DDIM, ...), "
                f"or one of {', '.join(_VE + _EDM)} is"
            )
        kept = torch.as_tensor(kept, dtype=torch.float64)
        kept = kept[kept > 0]  # schedules of zero terminal signal end with pure noise
        return ((1 - kept) / kept).sqrt().log()

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The noise levels it knows, in pixels of [0, 1]."""
        scale = self.model_range[1] - self.model_range[0]
        low, high = (self.table.double()[[0, -1]].exp() / scale).tolist()
        return low, high

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, height, width); sigma: (batch,). Returns the denoised image."""
        black, white = self.model_range
        y, s = black + (white - black) * x, (white - black) * sigma
        clean = getattr(self, f"_{self.family}")(y, per_item(s, x), s)
        return (clean - black) / (white - black)

    def _call(self, y: Tensor, time: Tensor) -> Tensor:
        # Models with a learned variance answer with twice the channels; the mean comes first.
        return self.network(y, time).sample[:, : y.shape[1]]

    def _vp(self, y: Tensor, s: Tensor, level: Tensor) -> Tensor:
        kept = 1 / (1 + s.square())
        out = self._call(y * kept.sqrt(), self.time(level))
        if self.prediction == "epsilon":
            return y - s * out
        if self.prediction == "sample":
            return out
        return kept * y - (1 - kept).sqrt() * out

    def _ve(self, y: Tensor, s: Tensor, level: Tensor) -> Tensor:
        return y + s.square() * self._call(y, level)

    def _edm(self, y: Tensor, s: Tensor, level: Tensor) -> Tensor:
        spread = float(self.scheduler["sigma_data"])
        total = s.square() + spread**2
        out = self._call(y / total.sqrt(), 0.25 * level.log())
        scale = s * spread / total.sqrt()
        return spread**2 / total * y + (scale if self.prediction == "epsilon" else -scale) * out

    def describe(self) -> dict[str, Any]:
        """The configurations from which `build_diffusers` makes this module again."""
        network = json.loads(self.network.to_json_string())
        return {"network": network, "scheduler": self.scheduler, "pixels": list(self.model_range)}

    def time(self, level: Tensor) -> Tensor:
        """The time index of noise level s, between two indices where s lies between theirs."""
        logs = self.table
        at = level.log().to(logs.dtype).clamp(logs[0], logs[-1])
        above = torch.searchsorted(logs, at).clamp(1, len(logs) - 1)
        low, high = logs[above - 1], logs[above]
        return (above - 1 + (at - low) / (high - low)).to(level.dtype)


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple | type(None))


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
        scheduler: The scheduler that the model was trained with, when the source is a model alone.
        size: The side of the images, where the model's configuration does not tell.
        model_range: The model's values for 0 and 1; by default (-1, 1), and (0, 1) for NCSN++.
        chunk: Most images per call.
    """
    if isinstance(source, str | Path):
        name = name or Path(source).name
        # The files' reader makes the module of this file.

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
