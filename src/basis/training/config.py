"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from basis.errors import BasisError
from basis.settings import check_settings, setting

_NOISE = {"sigma_min": 0.005, "sigma_max": 10.0, "sigma_focus": 0.27}
"""Noise levels for pictures in [0, 1], whose values have a standard deviation of about 0.3."""


def _noise_level(name: str, text: str) -> Any:
    return setting(None, f"{text} ({_NOISE[name]:g} for pictures)", at_least=0.0)


@dataclass(frozen=True)
class TrainConfig:
    """The settings of a training run.

    Noise levels are drawn from a log-normal distribution around `sigma_focus` (where the modes of a
    separation are decided) and, for a fraction `sigma_uniform` of the images, log-uniformly over
    the whole range. Levels that are not given suit pictures in [0, 1]; for other data they are
    scaled by the standard deviation of its values. The step size grows over `warmup` images, stays
    constant and falls to zero over the last `cooldown` of the run. The average of the weights is a
    power law of the step: about the last 1/average of the run counts, however long it is.
    """

    images: int = setting(
        1_000_000, "images to see in all; a resumed run may raise it; 0 trains only the variance"
    )
    hours: float | None = setting(None, "hours to train, instead of a number of images", above=0.0)
    batch_size: int = setting(128, "images per step", at_least=1)
    lr: float = setting(0.03, "learning rate of the weight matrices (Muon)", above=0.0)
    adam_lr: float = setting(3e-3, "learning rate of everything else (Adam)", above=0.0)
    warmup: int = setting(20_000, "images over which the learning rates grow from zero")
    cooldown: float = setting(
        0.3, "last part of the run, in which the rates fall to zero", at_least=0.0, at_most=1.0
    )
    average: float = setting(16.0, "exponent of the power-law average of the weights", at_least=0.0)
    sigma_min: float | None = _noise_level("sigma_min", "smallest noise level")
    sigma_max: float | None = _noise_level("sigma_max", "largest noise level")
    sigma_focus: float | None = _noise_level("sigma_focus", "median of the log-normal noise levels")
    sigma_std: float = setting(1.0, "standard deviation of log sigma", at_least=0.0)
    sigma_uniform: float = setting(
        0.3, "fraction of images whose noise level is log-uniform", at_least=0.0, at_most=1.0
    )
    score_weight: float = setting(
        2.0, "likelihood models: weight of the gradient's denoising error", at_least=0.0
    )
    dual_weight: float = setting(
        1.0, "energies: weight of the error of the slope over noise levels", at_least=0.0
    )
    flip: bool = setting(False, "mirror images at random")
    clip: float = setting(1.0, "largest norm of the gradient", above=0.0)
    smallest: int = setting(32, "matrices with a shorter side are trained by Adam", at_least=1)
    seed: int = setting(0, "seed of the weights and of all random numbers", at_most=2**63 - 1)

    def __post_init__(self) -> None:
        check_settings(self)
        low, high = self.sigma_min, self.sigma_max
        if low is not None and high is not None and low > high:
            raise BasisError(f"noise levels must be 0 <= sigma_min <= sigma_max, not {low}, {high}")

    @property
    def noise(self) -> tuple[float, float, float]:
        """sigma_min, sigma_max and sigma_focus; those for pictures where they are not given."""
        low, high, focus = (
            standard if (level := getattr(self, name)) is None else level
            for name, standard in _NOISE.items()
        )
        return low, high, focus

    def scaled(self, scale: float) -> TrainConfig:
        """The same with all noise levels filled in: `scale` times those for pictures."""
        missing: dict[str, Any] = {
            name: scale * level for name, level in _NOISE.items() if getattr(self, name) is None
        }
        return replace(self, **missing)
