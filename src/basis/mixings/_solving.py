"""Linear systems solved for every item of a batch by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from basis._tensors import per_item


def by_diagonal(diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """The inverse of a map's diagonal, to precondition it by; zeros there are left out."""
    inverse = torch.where(diagonal > 0, 1 / diagonal.clamp_min(1e-30), 0.0)
    return lambda r: r * inverse


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor] = lambda r: r,
    *,
    tolerance: float | None = None,
    most: int = 500,
) -> Tensor:
    """Solves apply(z) = b for a positive semi-definite map, each item of the batch for itself.

    Args:
        apply: The map, (batch, ...) to (batch, ...).
        b: The right-hand side, (batch, ...); of a singular map it must lie in its range.
        precondition: About the inverse of the map: `by_diagonal`, or a better one.
        tolerance: Relative size of the residual to stop at; what the precision allows by default.
        most: Most iterations.

    An item that has converged is not changed any more, so that no item depends on its batch.
    """
    if tolerance is None:
        tolerance = 1e-6 if b.dtype == torch.float32 else 1e-11

    def dot(a: Tensor, c: Tensor) -> Tensor:
        return (a.double() * c.double()).flatten(1).sum(dim=1)

    z, r = torch.zeros_like(b), b.clone()
    p = y = precondition(r)
    goal = tolerance**2 * dot(b, b)
    rho = dot(r, y)
    for _ in range(most):
        q = apply(p)
        curvature = dot(p, q)
        active = (dot(r, r) > goal) & (curvature > 0) & (rho > 0)
        if not active.any():
            break
        step = torch.where(active, rho / curvature.clamp_min(1e-300), 0.0)
        step = per_item(step.to(b.dtype), b)
        z = z + step * p
        r = r - step * q
        y = precondition(r)
        following = dot(r, y)
        ratio = torch.where(active, following / rho.clamp_min(1e-300), 0.0)
        p = y + per_item(ratio.to(b.dtype), b) * p
        rho = torch.where(active, following, rho)
    return z
