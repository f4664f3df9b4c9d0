"""diffusers: an unconditional `UNet2DModel` with its scheduler as a denoiser.

A scheduler defines how its x_t relates to a clean image: x_t = sqrt(a_t) (x + s_t n) with
s_t = sqrt((1 - a_t) / a_t) for the VP family (DDPM, DDIM and the solvers that share their betas),
x_t = x + s n for VE (NCSN++). Noise levels map to s exactly; between two time indices the index is
interpolated in log s. Values in [-1, 1] are converted, which doubles sigma.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError, one_line
from basis.nn.kind import Architecture, NetworkKind, entry
from basis.tensors import per_item

_VE = ("ScoreSdeVeScheduler",)
_EDM = ("EDMEulerScheduler", "EDMDPMSolverMultistepScheduler")
_PREDICTIONS = ("epsilon", "sample", "v_prediction")
MOST_STEPS = 100_000
"""Time steps that a scheduler may have; most have 1,000."""


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
            raise BasisError(
                "class-conditional diffusers models are not supported; unconditional ones are"
            )
        self.network = network
        self.scheduler = {k: v for k, v in dict(scheduler.config).items() if _plain(v)}
        kind = type(scheduler).__name__
        self.scheduler["_class_name"] = kind
        self.schedule = "ve" if kind in _VE else "edm" if kind in _EDM else "vp"
        self.prediction = self.scheduler.get("prediction_type", "epsilon")
        if self.prediction not in _PREDICTIONS:
            raise BasisError(
                f"prediction type {self.prediction!r} of a scheduler is unknown; "
                f"known are {', '.join(_PREDICTIONS)}"
            )
        # Only the NCSN++ family lives in [0, 1]: its pipeline clamps there.
        black, white = model_range or ((0.0, 1.0) if self.schedule == "ve" else (-1.0, 1.0))
        self.model_range = (float(black), float(white))
        table = self._noise_table(scheduler, kind)
        if len(table) < 2 or not table.isfinite().all() or not (table.diff() > 0).all():
            raise BasisError(
                f"the noise levels of scheduler {kind} do not rise from one to the next"
            )
        self.register_buffer("table", table, persistent=False)

    def _noise_table(self, scheduler: Any, kind: str) -> Tensor:
        """log s of every time index for the VP family, of the two ends for the others."""
        if self.schedule != "vp":
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
        """The noise levels it was trained on, for values in [0, 1]."""
        scale = self.model_range[1] - self.model_range[0]
        low, high = (self.table.double()[[0, -1]].exp() / scale).tolist()
        return low, high

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, height, width); sigma: (batch,). Returns the denoised image."""
        black, white = self.model_range
        y, s = black + (white - black) * x, (white - black) * sigma
        clean = getattr(self, f"_{self.schedule}")(y, per_item(s, x), s)
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
        data_std = float(self.scheduler["sigma_data"])
        total = s.square() + data_std**2
        out = self._call(y / total.sqrt(), 0.25 * level.log())
        scale = s * data_std / total.sqrt()
        return data_std**2 / total * y + (scale if self.prediction == "epsilon" else -scale) * out

    def describe(self) -> dict[str, Any]:
        """The configurations from which `build_diffusers` makes this module again."""
        network = json.loads(self.network.to_json_string())
        return {
            "network": network,
            "scheduler": self.scheduler,
            "model_range": list(self.model_range),
        }

    def time(self, level: Tensor) -> Tensor:
        """The time index of noise level s, between two indices where s lies between theirs."""
        logs = self.table
        at = level.log().to(logs.dtype).clamp(logs[0], logs[-1])
        above = torch.searchsorted(logs, at).clamp(1, len(logs) - 1)
        low, high = logs[above - 1], logs[above]
        return (above - 1 + (at - low) / (high - low)).to(level.dtype)


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple | type(None))


def build_diffusers(
    network: Mapping[str, Any], scheduler: Mapping[str, Any], model_range: Any = None
) -> DiffusersDenoiser:
    """An untrained model from two configurations; only classes of diffusers itself are used."""
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
        return DiffusersDenoiser(model, made.from_config(dict(scheduler)), _pair(model_range))
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # of diffusers, on configurations that contradict each other
        raise BasisError(f"diffusers cannot build this model: {one_line(error)}") from error


def _pair(model_range: Any) -> tuple[float, float] | None:
    if not model_range:
        return None
    low, high = (float(value) for value in model_range)
    if not -1e6 < low < high < 1e6:
        raise ValueError(f"model_range must be [low, high] with low < high, not {model_range}")
    return low, high


def _library() -> Any:
    try:
        import diffusers
    except ImportError as error:
        raise BasisError("this prior needs the diffusers package: pip install diffusers") from error
    return diffusers


def _build(architecture: Architecture) -> DiffusersDenoiser:
    network, scheduler = (entry(architecture, name) for name in ("network", "scheduler"))
    return build_diffusers(network, scheduler, architecture.get("model_range"))


KIND = NetworkKind(
    name="diffusers",
    title="score",
    module=DiffusersDenoiser,
    trainable=False,
    build=_build,
    describe=lambda module: module.describe(),
)
