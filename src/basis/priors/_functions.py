"""Plain functions as priors: a denoiser, a score or a log-density that somebody already has, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.priors._likelihood import LikelihoodPrior
from basis.priors._prior import Prior, as_sigmas

Function = Callable[[Tensor, Tensor], Tensor]


class FunctionPrior(Prior):
    """A function of (x, sigma) as a prior, in whatever range of pixels it thinks.

    Args:
        function: Takes x, (batch, channels, height, width), and sigma, (batch,), both in the function's own units.
        kind: "denoiser" (it answers E[clean | noisy]) or "score" (grad log p_sigma).
        shape: (channels, height, width).
        sigma_min, sigma_max: The noise levels it answers for, in units of pixels in [0, 1].
        pixels: The values that stand for black and white there: (-1, 1) for most diffusion models.
    """

    def __init__(
        self,
        function: Function,
        kind: str,
        shape: tuple[int, int, int],
        sigma_min: float,
        sigma_max: float,
        *,
        pixels: tuple[float, float] = (0.0, 1.0),
        name: str = "function",
        spread: float = 0.3,
    ) -> None:
        if not callable(function):
            raise BasisError(f"a {kind} must be a function of (x, sigma), not {function!r}")
        if len(shape) != 3:
            raise BasisError(f"shape must be (channels, height, width), not {tuple(shape)}")
        if not pixels[1] > pixels[0]:
            raise BasisError(f"pixels must be (black, white) with white above black, not {pixels}")
        if not 0 < sigma_min <= sigma_max:
            raise BasisError(
                f"noise levels must be 0 < sigma_min <= sigma_max, not {sigma_min}, {sigma_max}"
            )
        self.function, self.kind = function, kind
        self.shape, self.sigma_min, self.sigma_max = shape, sigma_min, sigma_max
        self.black, self.scale = pixels[0], pixels[1] - pixels[0]
        self.name, self.spread = name, spread

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        own, s = self.black + self.scale * x, self.scale * as_sigmas(sigma, x)
        answer = self.function(own, s)
        if answer.shape != x.shape:
            raise BasisError(
                f"the {self.kind} of prior {self.name!r} answered {tuple(answer.shape)} to {tuple(x.shape)}"
            )
        if self.kind == "score":
            answer = own + s.view(-1, 1, 1, 1).square() * answer
        return ((answer - self.black) / self.scale).to(x.dtype)


def from_denoiser(
    function: Function,
    shape: tuple[int, int, int],
    sigma_min: float,
    sigma_max: float,
    **settings: Any,
) -> FunctionPrior:
    """A prior from E[clean | noisy]; settings as for `FunctionPrior`."""
    return FunctionPrior(function, "denoiser", shape, sigma_min, sigma_max, **settings)


def from_score(
    function: Function,
    shape: tuple[int, int, int],
    sigma_min: float,
    sigma_max: float,
    **settings: Any,
) -> FunctionPrior:
    """A prior from grad log p_sigma; settings as for `FunctionPrior`."""
    return FunctionPrior(function, "score", shape, sigma_min, sigma_max, **settings)


class _LogProb:
    """A plain log-density as a model, converted to pixels in [0, 1]."""

    def __init__(self, function: Function, black: float, scale: float) -> None:
        self.function, self.black, self.scale = function, black, scale

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) per unit of [0, 1]."""
        own = self.function(self.black + self.scale * x, self.scale * sigma)
        return own + x[0].numel() * torch.tensor(self.scale, dtype=x.dtype).log()


def from_log_prob(
    function: Function,
    shape: tuple[int, int, int],
    sigma_min: float,
    sigma_max: float,
    *,
    pixels: tuple[float, float] = (0.0, 1.0),
    **settings: Any,
) -> LikelihoodPrior:
    """A prior from log p_sigma(x), which must be differentiable; other settings as for `LikelihoodPrior`."""
    model = _LogProb(function, pixels[0], pixels[1] - pixels[0])
    return LikelihoodPrior(model, shape, sigma_min, sigma_max, **settings)
