"""Observations at a lower resolution: block means of a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Bounds, Mixing, as_alphas, linear_range


class Downsample(Mixing):
    """m is the mean of sum_i alpha_i x_i over blocks of `factor` values along every dimension.

    Blocks do not overlap, so that A V A^T is diagonal and the posterior mean has a closed form.
    """

    diagonal = True

    def __init__(self, factor: int, alphas: Sequence[float] = (1.0,)) -> None:
        values = as_alphas(alphas)
        super().__init__(len(values))
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
            raise BasisError(f"factor must be a whole number of at least 1, not {factor!r}")
        if not values.any():
            raise BasisError("alphas must not all be zero")
        self.factor, self.alphas = factor, values

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if any(side % self.factor for side in shape[1:]):
            raise BasisError(
                f"sources must have sides that are multiples of {self.factor}, not "
                f"{'x'.join(map(str, shape[1:]))}"
            )
        return (shape[0], *(side // self.factor for side in shape[1:]))

    def forward(self, x: Tensor) -> Tensor:
        return self._block_means(torch.tensordot(x, self.alphas.to(x), dims=([1], [0])))

    def transpose(self, m: Tensor) -> Tensor:
        for dim in range(2, m.ndim):
            m = m.repeat_interleave(self.factor, dim=dim)
        weights = self.alphas.to(m).view(1, -1, *[1] * (m.ndim - 1)) / self.factor ** (m.ndim - 2)
        return m.unsqueeze(1) * weights

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        v = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand(x.shape)
        gram = torch.tensordot(v, self.alphas.square().to(x), dims=([1], [0]))
        return self._block_means(gram) / self.factor ** (x.ndim - 3)

    def output_range(self, value_range: Bounds) -> Bounds:
        return linear_range(self.alphas[None], value_range)

    @property
    def interchangeable(self) -> Tensor:
        return self.alphas[:, None] == self.alphas

    def summary(self) -> str:
        return f"blocks of {self.factor}, alphas {' '.join(f'{a:g}' for a in self.alphas.tolist())}"

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"factor": self.factor, "alphas": self.alphas.tolist()}

    def _block_means(self, x: Tensor) -> Tensor:
        for dim in range(2, x.ndim):
            x = x.unflatten(dim, (-1, self.factor)).mean(dim=dim + 1)
        return x


def downsample(factor: int, alphas: Sequence[float] = (1.0,)) -> Downsample:
    """Block means of sum_i alpha_i x_i, for super-resolution of images or mixtures.

    Args:
        factor: Block size along every dimension of the signal.
        alphas: One per source; one source by default.
    """
    return Downsample(factor, alphas)
