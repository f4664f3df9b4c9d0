"""Plain functions as priors: a denoiser, a score or a log-density."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from basis.errors import BasisError
from basis.priors.denoiser import check_answer
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Function, Prior, Range, Shape
from basis.tensors import as_sigmas, per_item


class Units:
    """The linear conversion between a prior's values and those of a model.

    Args:
        value_range: The prior's range.
        model_range: The model's values for the two ends of the range; None if they are the same.
    """

    def __init__(self, value_range: Range | None, model_range: tuple[float, float] | None) -> None:
        self.offset, self.scale, self.low = 0.0, 1.0, 0.0
        if model_range is None:
            return
        low, high = value_range or (None, None)
        if low is None or high is None:
            raise BasisError("model_range needs a value_range with two finite ends")
        if not model_range[1] > model_range[0]:
            raise BasisError(f"model_range must be (low, high) with low < high, not {model_range}")
        self.low, self.offset = low, model_range[0]
        self.scale = (model_range[1] - model_range[0]) / (high - low)

    def into(self, x: Tensor) -> Tensor:
        """The model's values."""
        return self.offset + self.scale * (x - self.low)

    def back(self, x: Tensor) -> Tensor:
        """The prior's values."""
        return (x - self.offset) / self.scale + self.low


class FunctionPrior(Prior):
    """A function of (x, sigma) as a prior.

    Args:
        function: Takes x, (batch, channels, *size), and sigma, (batch,), in the model's units.
        kind: "denoiser" (it returns E[clean | noisy]) or "score" (grad log p_sigma).
        shape: (channels, *size).
        sigma_min, sigma_max: The noise levels it was made for, in the model's units.
        model_range: The model's values for the two ends of `value_range`, such as (-1, 1) for most
            diffusion models of pictures; by default the model has the prior's values.
        value_range: The prior's range; (0, 1) by default, None for unbounded signals.
        settings: `name`, `center`, `std` and `errors` as for `Prior`, in the prior's units.
    """

    def __init__(
        self,
        function: Function,
        kind: str,
        shape: Shape,
        sigma_min: float,
        sigma_max: float,
        *,
        model_range: tuple[float, float] | None = None,
        value_range: Range | None = (0.0, 1.0),
        name: str = "function",
        **settings: Any,
    ) -> None:
        if not sigma_min > 0:
            raise BasisError(f"sigma_min must be more than 0, not {sigma_min}")
        if not callable(function):
            raise BasisError(f"a {kind} must be a function of (x, sigma), not {function!r}")
        units = Units(value_range, model_range)
        levels = sigma_min / units.scale, sigma_max / units.scale
        super().__init__(shape, *levels, name=name, value_range=value_range, **settings)
        self.function, self.kind, self.units = function, kind, units

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        own, s = self.units.into(x), self.units.scale * as_sigmas(sigma, x)
        answer = check_answer(self.function(own, s), x, self.name)
        if self.kind == "score":
            answer = own + per_item(s, x).square() * answer
        return self.units.back(answer).to(x.dtype)


class _LogProb:
    """A log-density in the model's units, converted to a prior's."""

    def __init__(self, function: Function, units: Units) -> None:
        self.function, self.units = function, units

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) per unit of the prior's values."""
        answer = self.function(self.units.into(x), self.units.scale * sigma)
        if not isinstance(answer, Tensor):
            raise BasisError(
                f"a log-density must return a tensor (batch,), not {type(answer).__name__}"
            )
        return answer + x[0].numel() * math.log(self.units.scale)


def prior_from_log_prob(
    function: Function,
    shape: Shape,
    sigma_min: float,
    sigma_max: float,
    *,
    model_range: tuple[float, float] | None = None,
    value_range: Range | None = (0.0, 1.0),
    **settings: Any,
) -> LikelihoodPrior:
    """A prior from log p_sigma(x); arguments as for `Prior.from_log_prob`."""
    units = Units(value_range, model_range)
    levels = sigma_min / units.scale, sigma_max / units.scale
    model = _LogProb(function, units)
    return LikelihoodPrior(model, shape, *levels, value_range=value_range, **settings)
