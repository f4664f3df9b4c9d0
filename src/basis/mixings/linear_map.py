"""A user's own linear map as a mixing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError, named
from basis.mixings.mixing import Mixing

Map = Callable[[Tensor], Tensor]

_TOLERANCE = 1e-4  # relative error of the tests, far above rounding


class Linear(Mixing):
    """A mixing from functions; they are tested once the shape of the sources is known.

    Args:
        forward: A, from sources (batch, sources, channels, *size) to observations (batch, ...).
        adjoint: A^T, from observations to sources; by automatic differentiation if None.
        sources: The number of sources.
    """

    def __init__(self, forward: Map, adjoint: Map | None = None, sources: int = 2) -> None:
        if not callable(forward) or not (adjoint is None or callable(adjoint)):
            raise BasisError("forward and adjoint must be functions")
        if isinstance(sources, bool) or not isinstance(sources, int) or sources < 1:
            raise BasisError(f"sources must be a whole number of at least 1, not {sources!r}")
        super().__init__(sources)
        self._forward = forward
        self._adjoint = self._differentiate if adjoint is None else adjoint
        self._observed: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}

    def forward(self, x: Tensor) -> Tensor:
        m = _call("forward", self._forward, x)
        self._shapes[tuple(m.shape[1:])] = tuple(x.shape[2:])
        return m

    def transpose(self, m: Tensor) -> Tensor:
        return _call("adjoint", self._adjoint, m)

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape not in self._observed:
            self._observed[shape] = self._check(shape)
        return self._observed[shape]

    def describe(self) -> dict[str, Any]:
        name = getattr(self._forward, "__qualname__", type(self._forward).__name__)
        return super().describe() | {"forward": name}

    def _differentiate(self, m: Tensor) -> Tensor:
        """A^T m, the gradient of <A x, m> with respect to x."""
        shape = self._shapes.get(tuple(m.shape[1:]))
        if shape is None:
            raise BasisError("the adjoint needs the shape of the sources: call mixing.fit(shape)")
        with torch.inference_mode(False), torch.enable_grad():
            x = m.new_zeros(len(m), self.sources, *shape, requires_grad=True)
            out = _call("forward", self._forward, x)
            if not out.requires_grad:
                raise BasisError("forward cannot be differentiated by torch; give adjoint=")
            return torch.autograd.grad(out, x, m.detach().clone())[0]

    def _check(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an observation; raises unless A is linear and A^T its adjoint."""
        generator = torch.Generator().manual_seed(0)
        # A batch that cannot be mistaken for the sources.
        batch = 3 if self.sources == 2 else 2
        x, y = torch.randn(2, batch, self.sources, *shape, generator=generator)
        m = _call("forward", self._forward, x)
        if not m.isfinite().all():
            raise BasisError("forward returned NaN or infinite values for finite sources")
        self._shapes[tuple(m.shape[1:])] = shape
        both = _call("forward", self._forward, x + 2 * y)
        apart = m + 2 * _call("forward", self._forward, y)
        if (both - apart).norm() > _TOLERANCE * (both.norm() + apart.norm()):
            raise BasisError("forward is not linear: A(x + 2 y) differs from A x + 2 A y")
        for probe in (m, torch.randn(m.shape, generator=generator)):
            back = _call("adjoint", self._adjoint, probe)
            if back.shape != x.shape:
                raise BasisError(
                    f"adjoint must return {tuple(x.shape)} for {tuple(probe.shape)}, not "
                    f"{tuple(back.shape)}"
                )
            if not back.isfinite().all():
                raise BasisError("adjoint returned NaN or infinite values for finite observations")
            left = (m.double() * probe.double()).flatten(1).sum(dim=1)
            right = (x.double() * back.double()).flatten(1).sum(dim=1)
            scale = m.double().flatten(1).norm(dim=1) * probe.double().flatten(1).norm(dim=1)
            error = ((left - right).abs() / scale.clamp_min(1e-30)).max().item()
            if not error <= _TOLERANCE:
                raise BasisError(
                    "adjoint is not the adjoint of forward: <A x, m> and <x, A^T m> differ by "
                    f"{error:.2g} of |A x| |m| for random x and m"
                )
        return tuple(m.shape[1:])


def _call(name: str, function: Map, value: Tensor) -> Tensor:
    """What a user's function returns, checked to be a batch of floats."""
    given = f"{name} was called with a tensor of shape {tuple(value.shape)}"
    try:
        result = function(value)
    except BasisError:
        raise
    except Exception as error:  # from the user's code
        raise BasisError(f"{given} and failed: {named(error)}") from error
    if not isinstance(result, Tensor):
        raise BasisError(f"{name} must return a tensor, not {type(result).__name__}")
    if result.ndim < 2 or len(result) != len(value):
        raise BasisError(
            f"{given} and returned {tuple(result.shape)}; the batch must stay first: "
            f"({len(value)}, channels, ...) is accepted"
        )
    if not result.is_floating_point():
        kind = str(result.dtype).removeprefix("torch.")
        raise BasisError(f"{name} must return floats, not {kind}")
    return result


def linear(forward: Map, adjoint: Map | None = None, sources: int = 2) -> Linear:
    """A user's own linear map as a mixing.

    Args:
        forward: A, from sources (batch, sources, channels, *size) to observations (batch, ...).
        adjoint: A^T, from observations to sources, tested by <A x, m> = <x, A^T m>. By default it
            is computed by automatic differentiation, for which forward must be made of
            differentiable torch operations.
        sources: The number of sources.
    """
    return Linear(forward, adjoint, sources)
