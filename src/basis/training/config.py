"""How a network is trained: settings without torch, so that a command line is built quickly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from basis.errors import BasisError
from basis.settings import check_ranges

_NOISE = {"sigma_min": 0.005, "sigma_max": 10.0, "sigma_focus": 0.27}
"""Noise levels for pictures in [0, 1], whose values have a standard deviation of about 0.3."""


def _setting(default: Any, text: str, least: int = 1, **bounds: float) -> Any:
    return field(default=default, metadata={"help": text, "least": least, **bounds})


def _level(name: str, text: str) -> Any:
    return _setting(None, f"{text} ({_NOISE[name]:g} for pictures)", at_least=0.0)


@dataclass(frozen=True)
class TrainConfig:
    """How a network is trained.

    Noise levels are drawn log-normal about `sigma_focus` (where the modes of a separation are
    decided) and, for a share of `sigma_uniform` of the images, log-uniform over the whole range.
    Levels that are not given suit pictures in [0, 1]; for other data they are scaled by the spread
    of its values. Steps grow over `warmup`, stay, and fall to zero over the last `cooldown` of the
    run. The weights' average is a power law of the step, so that about the last 1/average of the
    run counts however long it is.
    """

    images: int = _setting(
        1_000_000,
        "images to see in all; a resumed run may raise it, and 0 only learns how sure --init is",
        least=0,
    )
    batch: int = _setting(128, "images per step")
    lr: float = _setting(0.03, "step of the matrices (Muon)", above=0.0)
    adam_lr: float = _setting(3e-3, "step of everything else (Adam)", above=0.0)
    warmup: int = _setting(20_000, "images over which the steps grow from zero", least=0)
    cooldown: float = _setting(
        0.3, "last part of the run over which the steps fall to zero", at_least=0.0, at_most=1.0
    )
    average: float = _setting(
        16.0, "exponent of the power-law average of the weights", at_least=0.0
    )
    sigma_min: float | None = _level("sigma_min", "smallest noise level")
    sigma_max: float | None = _level("sigma_max", "largest noise level")
    sigma_focus: float | None = _level("sigma_focus", "median of the log-normal noise levels")
    sigma_spread: float = _setting(
        1.0, "standard deviation of log sigma about the focus", at_least=0.0
    )
    sigma_uniform: float = _setting(
        0.3, "share of images whose noise level is log-uniform", at_least=0.0, at_most=1.0
    )
    score: float = _setting(
        2.0, "likelihood models: weight of their gradient's denoising error", at_least=0.0
    )
    teacher: str | None = _setting(
        None,
        "likelihood models: prior whose denoising their gradient learns, on noised images and on "
        "states that separations visit",
    )
    dual: float = _setting(
        1.0, "energies: weight of the error of their slope over noise levels", at_least=0.0
    )
    flip: bool = _setting(False, "mirror images at random")
    clip: float = _setting(1.0, "largest gradient norm", above=0.0)
    smallest: int = _setting(32, "matrices with a shorter side are trained by Adam")
    seed: int = _setting(0, "seed of the weights and of everything drawn", least=0, most=2**63 - 1)

    def __post_init__(self) -> None:
        check_ranges(self)
        low, high = self.sigma_min, self.sigma_max
        if low is not None and high is not None and low > high:
            raise BasisError(f"noise levels must be 0 <= sigma_min <= sigma_max, not {low}, {high}")

    @property
    def noise(self) -> tuple[float, float, float]:
        """sigma_min, sigma_max and sigma_focus; those for pictures where they are not given."""
        given = (getattr(self, name) for name in _NOISE)
        low, high, focus = (
            standard if level is None else level
            for level, standard in zip(given, _NOISE.values(), strict=True)
        )
        return low, high, focus

    def in_units(self, unit: float) -> TrainConfig:
        """The same with all noise levels filled in: `unit` times those for pictures."""
        missing: dict[str, Any] = {
            name: unit * level for name, level in _NOISE.items() if getattr(self, name) is None
        }
        return replace(self, **missing)
