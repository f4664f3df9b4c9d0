"""Plain functions as priors: a denoiser, a score or a log-density."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError, named
from basis.priors.card import check_value_range
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Function, Prior, Range, Shape
from basis.tensors import as_sigmas, per_item

_LARGE = 6.0
"""A noise level at which no Gaussian's denoiser returns the noise, whatever its deviation."""
_NARROW = 3.0
"""The same for signals whose range is at most this wide, at all noise levels."""
_FAR = 100.0
"""Inputs farther from the center, in units of std + sigma, belong to a sampler that diverged."""

_SETTINGS = ("center", "std", "errors", "card")


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
        own = check_value_range(model_range, "model_range")
        if own is None or math.isinf(own[0]) or math.isinf(own[1]):
            raise BasisError(f"model_range must be two finite numbers, not {model_range!r:.60}")
        self.low, self.offset = low, own[0]
        self.scale = (own[1] - own[0]) / (high - low)

    def into(self, x: Tensor) -> Tensor:
        """The model's values."""
        return self.offset + self.scale * (x - self.low)

    def back(self, x: Tensor) -> Tensor:
        """The prior's values."""
        return (x - self.offset) / self.scale + self.low


def check_function(function: object, kind: str) -> None:
    """Raises unless something can be called with (x, sigma)."""
    if not callable(function):
        raise BasisError(f"a {kind} must be a function of (x, sigma), not {function!r:.60}")
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # of functions written in C
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise BasisError(
            f"a {kind} is called with (x, sigma), but this function takes {signature}"
        ) from error


def call_function(
    function: Function, x: Tensor, sigma: Tensor, name: str, shape: tuple[int, ...]
) -> Tensor:
    """What a user's function returns, checked to be floats of a shape; errors name the prior.

    Args:
        function: Called with x and sigma.
        x: (batch, channels, *size).
        sigma: (batch,).
        name: The prior.
        shape: The shape of the answer.
    """
    given = f"x of shape {tuple(x.shape)} and sigma of shape {tuple(sigma.shape)}"
    ones = ", 1" * (x.ndim - 1)
    try:
        answer = function(x, sigma)
    except (BasisError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # from the user's code
        raise BasisError(
            f"the function of prior {name!r} failed on {given} (use sigma.view(-1{ones})): "
            f"{named(error)}"
        ) from error
    if not isinstance(answer, Tensor) or answer.shape != shape:
        found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise BasisError(
            f"the function of prior {name!r} must return a tensor of shape {tuple(shape)} for "
            f"{given}, not {found}"
        )
    if not answer.is_floating_point():
        kind = str(answer.dtype).removeprefix("torch.")
        raise BasisError(f"the function of prior {name!r} must return floats, not {kind}")
    return answer


def check_finite(
    answer: Tensor, x: Tensor, sigma: Tensor, name: str, center: float, std: float
) -> None:
    """Raises for NaN or infinite answers to inputs that a sampler may give; all in model units."""
    if answer.isfinite().all():
        return
    far = ((x - center).flatten(1).abs().amax(dim=1) / (std + sigma)).nan_to_num(nan=torch.inf)
    broken = ~answer.reshape(len(x), -1).isfinite().all(dim=1) & (far < _FAR)
    if broken.any():
        raise BasisError(
            f"the function of prior {name!r} returns NaN or infinite values at sigma "
            f"{sigma[broken][0].item():.3g}; finite ones are accepted"
        )


def _check_levels(sigma_min: object, sigma_max: object) -> None:
    """Raises unless noise levels are finite numbers above 0."""
    for name, value in (("sigma_min", sigma_min), ("sigma_max", sigma_max)):
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise BasisError(f"{name} must be a finite number above 0, not {value!r:.60}")


def _check_names(settings: Mapping[str, Any]) -> None:
    """Raises for settings that priors from functions do not have."""
    for name in settings:
        if name not in _SETTINGS:
            raise BasisError(
                f"there is no setting {name!r:.60}; accepted: model_range, value_range, name, "
                f"{', '.join(_SETTINGS)}"
            )


class FunctionPrior(Prior):
    """A function of (x, sigma) as a prior; see `Prior.from_denoiser`.

    The first call is preceded by one with noise, to notice a function that returns the noise.

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
        _check_levels(sigma_min, sigma_max)
        _check_names(settings)
        check_function(function, kind)
        units = Units(value_range, model_range)
        levels = sigma_min / units.scale, sigma_max / units.scale
        super().__init__(shape, *levels, name=name, value_range=value_range, **settings)
        self.function, self.kind, self.units = function, kind, units
        self._probed = False

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        self._check_batch(x)
        own, s = self.units.into(x), self.units.scale * as_sigmas(sigma, x)
        training = isinstance(self.function, nn.Module) and self.function.training
        if self.kind == "denoiser" and not (self._probed or training):
            self._check_not_noise(x)
            self._probed = True
        answer = self._answer(own, s)
        if self.kind == "score":
            answer = own + per_item(s, x).square() * answer
        return self.units.back(answer).to(x.dtype)

    def _answer(self, own: Tensor, s: Tensor) -> Tensor:
        """The function's answer, in the model's units."""
        answer = call_function(self.function, own, s, self.name, own.shape)
        check_finite(answer, own, s, self.name, self._own_center, self.units.scale * self.std)
        return answer

    @property
    def _own_center(self) -> float:
        """The center in the model's units."""
        return self.units.offset + self.units.scale * (self.center - self.units.low)

    @torch.no_grad()
    def _check_not_noise(self, like: Tensor) -> None:
        """Raises if the function returns the noise of a noisy constant instead of the constant.

        It does if its answer is the noise at two large noise levels. Where neither the noise nor
        the range allows to tell it from a denoiser, nothing is checked.
        """
        largest, scale = self.units.scale * self.sigma_max, self.units.scale
        narrow = None not in (self.low, self.high) and scale * (self.high - self.low) <= _NARROW  # type: ignore[operator]
        # A batch that cannot be mistaken for the last axis, with enough values to compare.
        count = max(2, math.ceil(64 / math.prod(self.shape)))
        count += count == self.shape[-1]
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(count, *self.shape, generator=generator).to(like)
        for sigma, least in ((largest, 0.9), (largest / 2, 0.8)):
            with torch.random.fork_rng(devices=[]):
                answer = self._answer(
                    self._own_center + sigma * noise, like.new_full((count,), sigma)
                )
            slope = ((answer * noise).sum() / noise.square().sum()).item()
            rest = ((answer - slope * noise).norm() / noise.norm()).item()
            if not (narrow or largest >= _LARGE) or not least < slope < 1.1 or rest > 0.3:
                return
        ones = ", 1" * len(self.shape)
        raise BasisError(
            f"the function of prior {self.name!r} is a wrong denoiser: it returns the noise, not "
            f"the clean signal: pass lambda x, s: x - s.view(-1{ones}) * fn(x, s)"
        )


class _LogProb:
    """A log-density in the model's units, converted to a prior's."""

    def __init__(self, function: Function, units: Units, name: str) -> None:
        check_function(function, "log_prob")
        self.function, self.units, self.name = function, units, name

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) per unit of the prior's values."""
        own, s = self.units.into(x), self.units.scale * sigma
        answer = call_function(self.function, own, s, self.name, (len(x),))
        if torch.is_grad_enabled() and x.requires_grad and not answer.requires_grad:
            raise BasisError(
                f"the function of prior {self.name!r} cannot be differentiated by torch; its score "
                "is the gradient of log_prob, so it must be made of differentiable operations"
            )
        if (answer.isnan() & own.flatten(1).isfinite().all(dim=1)).any():
            raise BasisError(f"the function of prior {self.name!r} returns NaN")
        return answer + x[0].numel() * math.log(self.units.scale)


def prior_from_log_prob(
    function: Function,
    shape: Shape,
    sigma_min: float,
    sigma_max: float,
    *,
    model_range: tuple[float, float] | None = None,
    value_range: Range | None = (0.0, 1.0),
    name: str = "likelihood",
    **settings: Any,
) -> LikelihoodPrior:
    """A prior from log p_sigma(x); arguments as for `Prior.from_log_prob`."""
    _check_levels(sigma_min, sigma_max)
    _check_names(settings)
    units = Units(value_range, model_range)
    levels = sigma_min / units.scale, sigma_max / units.scale
    model = _LogProb(function, units, name)
    return LikelihoodPrior(model, shape, *levels, value_range=value_range, name=name, **settings)
