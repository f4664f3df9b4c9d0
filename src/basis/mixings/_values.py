"""Values that mixings take, checked: bounds, numbers, weights and sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis._errors import BasisError

Bound = Tensor | float | None


def clamp(x: Tensor, low: Bound, high: Bound) -> Tensor:
    """x, of any shape, between bounds that are numbers, tensors that broadcast to it, or None."""
    if low is None and high is None:
        return x
    return x.clamp(low, high)  # type: ignore[arg-type]


def as_numbers(values: Any) -> Tensor:
    """Numbers as float64 on the CPU: from tensors, arrays of any strides, or lists of either."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64)
    if isinstance(values, list | tuple):
        values = [
            as_numbers(v).tolist() if isinstance(v, Tensor | np.ndarray) else v for v in values
        ]
    return torch.from_numpy(np.array(values, dtype=np.float64))


def check_sources(x: Tensor, sources: int) -> None:
    """Refuses what are no sources to be mixed; whole numbers would wrap or be cut off silently."""
    if not isinstance(x, Tensor):
        raise BasisError(f"sources must be a tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise BasisError(f"sources must be floats, not {kind}: divide 8-bit pixels by 255")
    if x.ndim < 3 or x.shape[1] != sources:
        raise BasisError(f"sources must be (batch, {sources}, channels, ...), not {tuple(x.shape)}")


def as_weights(alphas: Any) -> Tensor:
    """Weights as a float64 vector, checked."""
    try:
        weights = as_numbers(alphas)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(f"alphas must be a list of numbers, one per source: {error}") from error
    if weights.ndim != 1 or not len(weights) or not torch.isfinite(weights).all():
        raise BasisError("alphas must be a non-empty list of finite numbers, one per source")
    return weights
