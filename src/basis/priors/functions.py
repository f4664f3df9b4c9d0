"""Plain functions as priors: a denoiser, a score or a log-density that somebody already has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from basis.errors import BasisError
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.tensors import as_sigmas, per_item

Function = Callable[[Tensor, Tensor], Tensor]
Shape = tuple[int, ...]


class Units:
    """The conversion between a prior's values and those that a model was made for.

    Args:
        low, high: The prior's range.
        pixels: The values that stand for low and high in the model; None where they are the same.
    """

    def __init__(
        self, low: float | None, high: float | None, pixels: tuple[float, float] | None
    ) -> None:
        self.offset, self.scale, self.low = 0.0, 1.0, 0.0
        if pixels is None:
            return
        if low is None or high is None:
            raise BasisError("pixels converts a range: give low and high as well")
        if not pixels[1] > pixels[0]:
            raise BasisError(f"pixels must be (black, white) with white above black, not {pixels}")
        self.low, self.offset = low, pixels[0]
        self.scale = (pixels[1] - pixels[0]) / (high - low)

    def into(self, x: Tensor) -> Tensor:
        """The model's values."""
        return self.offset + self.scale * (x - self.low)

    def back(self, x: Tensor) -> Tensor:
        """The prior's values."""
        return (x - self.offset) / self.scale + self.low


class FunctionPrior(Prior):
    """A function of (x, sigma) as a prior, in whatever range of values it was made for.

    Args:
        function: Takes x, (batch, channels, *size), and sigma, (batch,), in the function's units.
        kind: "denoiser" (it answers E[clean | noisy]) or "score" (grad log p_sigma).
        shape: (channels, *size).
        sigma_min, sigma_max: The noise levels it answers for, in the prior's units.
        low, high: Bounds of the prior's values; 0 and 1 by default, None for no bound.
        pixels: The values that stand for low and high in the function's units: (-1, 1) for most
            diffusion models; by default the function has the prior's own units.
        settings: `name`, `center`, `spread` and `errors`, as for `Prior`.
    """

    def __init__(
        self,
        function: Function,
        kind: str,
        shape: Shape,
        sigma_min: float,
        sigma_max: float,
        *,
        low: float | None = 0.0,
        high: float | None = 1.0,
        pixels: tuple[float, float] | None = None,
        name: str = "function",
        **settings: Any,
    ) -> None:
        if not sigma_min > 0:
            raise BasisError(f"noise levels must be 0 < sigma_min, not {sigma_min}")
        super().__init__(shape, sigma_min, sigma_max, name=name, low=low, high=high, **settings)
        if not callable(function):
            raise BasisError(f"a {kind} must be a function of (x, sigma), not {function!r}")
        self.function, self.kind = function, kind
        self.units = Units(self.low, self.high, pixels)

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        own, s = self.units.into(x), self.units.scale * as_sigmas(sigma, x)
        answer = self.function(own, s)
        if not isinstance(answer, Tensor):
            raise BasisError(
                f"the {self.kind} of prior {self.name!r} must answer with a tensor, "
                f"not {type(answer).__name__}"
            )
        if answer.shape != x.shape:
            raise BasisError(
                f"the {self.kind} of prior {self.name!r} answered {tuple(answer.shape)} "
                f"to {tuple(x.shape)}"
            )
        if self.kind == "score":
            answer = own + per_item(s, x).square() * answer
        return self.units.back(answer).to(x.dtype)


def from_denoiser(
    function: Function, shape: Shape, sigma_min: float, sigma_max: float, **settings: Any
) -> FunctionPrior:
    """A prior from E[clean | noisy]; settings as for `FunctionPrior`."""
    return FunctionPrior(function, "denoiser", shape, sigma_min, sigma_max, **settings)


def from_score(
    function: Function, shape: Shape, sigma_min: float, sigma_max: float, **settings: Any
) -> FunctionPrior:
    """A prior from grad log p_sigma; settings as for `FunctionPrior`."""
    return FunctionPrior(function, "score", shape, sigma_min, sigma_max, **settings)


class _LogProb:
    """A plain log-density as a model, converted to a prior's units."""

    def __init__(self, function: Function, units: Units) -> None:
        self.function, self.units = function, units

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) per unit of the prior's values."""
        own = self.function(self.units.into(x), self.units.scale * sigma)
        if not isinstance(own, Tensor):
            raise BasisError(
                f"a log-density must answer with a tensor (batch,), not {type(own).__name__}"
            )
        return own + x[0].numel() * math.log(self.units.scale)


def from_log_prob(
    function: Function,
    shape: Shape,
    sigma_min: float,
    sigma_max: float,
    *,
    low: float | None = 0.0,
    high: float | None = 1.0,
    pixels: tuple[float, float] | None = None,
    **settings: Any,
) -> LikelihoodPrior:
    """A prior from log p_sigma(x), which must be differentiable.

    Units as for `FunctionPrior`, other settings as for `LikelihoodPrior`.
    """
    model = _LogProb(function, Units(low, high, pixels))
    return LikelihoodPrior(model, shape, sigma_min, sigma_max, low=low, high=high, **settings)
