"""A user's own linear map as a mixing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Mixing

Map = Callable[[Tensor], Tensor]

_WRONG = 1e-4  # relative error of the dot-product test that rounding does not explain


class Linear(Mixing):
    """A mixing from two functions; the adjoint is checked when the shape of the sources is known.

    Args:
        forward: A, from sources (batch, sources, channels, *size) to observations (batch, ...).
        adjoint: A^T, back again.
        sources: The number of sources.
    """

    def __init__(self, forward: Map, adjoint: Map, sources: int) -> None:
        if not (callable(forward) and callable(adjoint)):
            raise BasisError("linear takes two functions, A and its adjoint")
        if isinstance(sources, bool) or not isinstance(sources, int) or sources < 1:
            raise BasisError(f"sources must be a whole number of at least 1, not {sources!r}")
        super().__init__(sources)
        self._forward, self._adjoint = forward, adjoint
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x)

    def transpose(self, m: Tensor) -> Tensor:
        return self._adjoint(m)

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape not in self._known:
            self._known[shape] = self._check(shape)
        return self._known[shape]

    def describe(self) -> dict[str, Any]:
        name = getattr(self._forward, "__qualname__", type(self._forward).__name__)
        return super().describe() | {"forward": name}

    def _check(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of an observation, after the tests that A is linear and A^T its adjoint."""
        generator = torch.Generator().manual_seed(0)
        x, other = torch.randn(2, 2, self.sources, *shape, generator=generator)
        m = self._call("forward", self._forward, x)
        if m.shape[0] != 2 or m.ndim < 2:
            raise BasisError(
                f"forward answered {tuple(m.shape)} to {tuple(x.shape)}; the batch must stay first"
            )
        both = self._call("forward", self._forward, x + 2 * other)
        apart = m + 2 * self._call("forward", self._forward, other)
        if (both - apart).norm() > _WRONG * (both.norm() + apart.norm()):
            raise BasisError("forward is not linear: A(x + 2 y) differs from A x + 2 A y")
        for probe in (m, torch.randn(m.shape, generator=generator)):
            back = self._call("adjoint", self._adjoint, probe)
            if back.shape != x.shape:
                raise BasisError(
                    f"adjoint answered {tuple(back.shape)} to {tuple(probe.shape)}; it must answer "
                    f"{tuple(x.shape)}"
                )
            left = (m.double() * probe.double()).flatten(1).sum(dim=1)
            right = (x.double() * back.double()).flatten(1).sum(dim=1)
            scale = m.double().flatten(1).norm(dim=1) * probe.double().flatten(1).norm(dim=1)
            error = ((left - right).abs() / scale.clamp_min(1e-30)).max().item()
            if not error <= _WRONG:
                raise BasisError(
                    "adjoint is not the adjoint of forward: <A x, m> and <x, A^T m> differ by "
                    f"{error:.2g} of |A x| |m| for random x and m"
                )
        return tuple(m.shape[1:])

    @staticmethod
    def _call(name: str, function: Map, value: Tensor) -> Tensor:
        try:
            answer = function(value)
        except Exception as error:
            # The user's own code: whatever it raises, say which function it was.
            line = (str(error).splitlines() or [""])[0]
            raise BasisError(
                f"{name} failed on {tuple(value.shape)}: {type(error).__name__}: {line}"
            ) from error
        if not isinstance(answer, Tensor):
            raise BasisError(f"{name} must answer with a tensor, not {type(answer).__name__}")
        return answer


def linear(forward: Map, adjoint: Map, *, sources: int) -> Linear:
    """A user's own linear map as a mixing.

    Args:
        forward: A, from sources (batch, sources, channels, *size) to observations (batch, ...).
        adjoint: A^T, back again; checked by the dot-product test <A x, m> = <x, A^T m>.
        sources: The number of sources.
    """
    return Linear(forward, adjoint, sources)
