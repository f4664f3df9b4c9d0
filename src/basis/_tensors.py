"""Shapes of batches, in one place."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_sigmas", "per_item"]


def as_sigmas(sigma: Tensor | float, x: Tensor) -> Tensor:
    """sigma as one number per item of x, (batch,), in x's precision and place."""
    s = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return s.expand(x.shape[0]) if s.ndim == 0 else s


def per_item(value: Tensor | float, x: Tensor) -> Tensor:
    """A number, or one number per item, shaped to broadcast over x: (batch, 1, ..., 1).

    Args:
        value: A number or (batch,).
        x: (batch, ...), of any rank; the answer has its precision and place.
    """
    return as_sigmas(value, x).reshape(-1, *[1] * (x.ndim - 1))
