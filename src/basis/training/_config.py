"""How a denoiser is trained: settings without torch, so that a command line can be built from them quickly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from basis._errors import BasisError


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """How a denoiser is trained.

    Noise levels are drawn log-normal about `sigma_focus` (where the modes of a separation are decided) and,
    for a share of `sigma_uniform` of the images, log-uniform over the whole range. Steps grow over `warmup`,
    stay, and fall to zero over the last `cooldown` of the run. The weights' average is a power law of the step, so
    that about the last 1/average of the run counts however long it is.
    """

    images: int = _setting(1_000_000, "images to see in all; a resumed run may raise it")
    batch: int = _setting(128, "images per step")
    lr: float = _setting(0.03, "step of the matrices (Muon)")
    adam_lr: float = _setting(3e-3, "step of everything else (Adam)")
    warmup: int = _setting(20_000, "images over which the steps grow from zero")
    cooldown: float = _setting(0.3, "last part of the run over which the steps fall to zero")
    average: float = _setting(16.0, "exponent of the power-law average of the weights")
    sigma_min: float = _setting(0.005, "smallest noise level")
    sigma_max: float = _setting(10.0, "largest noise level")
    sigma_focus: float = _setting(0.27, "median of the log-normal noise levels")
    sigma_spread: float = _setting(1.0, "standard deviation of log sigma about the focus")
    sigma_uniform: float = _setting(0.3, "share of images whose noise level is log-uniform")
    score: float = _setting(2.0, "likelihood models: weight of their gradient's denoising error")
    flip: bool = _setting(False, "mirror images at random")
    clip: float = _setting(1.0, "largest gradient norm")
    smallest: int = _setting(32, "matrices with a shorter side are trained by Adam")
    seed: int = _setting(0, "seed of the weights and of everything drawn")

    def __post_init__(self) -> None:
        for name in ("lr", "adam_lr"):
            if not getattr(self, name) > 0:
                raise BasisError(f"{name} must be more than 0, not {getattr(self, name)}")
        if not 0 <= self.cooldown <= 1:
            raise BasisError(f"cooldown must be a share from 0 to 1, not {self.cooldown}")
        if not 0 <= self.sigma_min <= self.sigma_max:
            raise BasisError(
                f"noise levels must be 0 <= sigma_min <= sigma_max, not {self.sigma_min}, {self.sigma_max}"
            )
