"""Sources seen at a lower resolution: block means of a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.mixings.mixing import Mixing, as_alphas


class Downsample(Mixing):
    """m is the mean of sum_i alpha_i x_i over blocks of `factor` places along every dimension.

    Blocks do not overlap, so that A V A^T is diagonal and the posterior mean has a closed form.
    """

    def __init__(self, factor: int, alphas: Sequence[float] = (1.0,)) -> None:
        weights = as_alphas(alphas)
        super().__init__(len(weights))
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
            raise BasisError(f"factor must be a whole number of at least 1, not {factor!r}")
        if not weights.any():
            raise BasisError("mixing weights must not all be zero")
        self.factor, self.alphas = factor, weights
        self._plain = mixture(weights.tolist())

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if any(side % self.factor for side in shape[1:]):
            raise BasisError(
                f"sources of {'x'.join(map(str, shape[1:]))} cannot be cut into blocks of "
                f"{self.factor}; every side must be a multiple of it"
            )
        return (shape[0], *(side // self.factor for side in shape[1:]))

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.tensordot(x, self.alphas.to(x), dims=([1], [0]))
        return self._pool(mixed)

    def transpose(self, m: Tensor) -> Tensor:
        for dim in range(2, m.ndim):
            m = m.repeat_interleave(self.factor, dim=dim)
        share = self.alphas.to(m).view(1, -1, *[1] * (m.ndim - 1)) / self.factor ** (m.ndim - 2)
        return m.unsqueeze(1) * share

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        gram = self.gram_diagonal(x, variance)
        return self.diagonal_posterior_mean(x, m, gram, variance, noise)

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        v = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand(x.shape)
        gram = torch.tensordot(v, self.alphas.square().to(x), dims=([1], [0]))
        return self._pool(gram) / self.factor ** (x.ndim - 3)

    def output_range(
        self, low: float | None, high: float | None
    ) -> tuple[float | None, float | None]:
        return self._plain.output_range(low, high)

    @property
    def interchangeable(self) -> Tensor:
        return self._plain.interchangeable

    def summary(self) -> str:
        return f"blocks of {self.factor}, alphas {' '.join(f'{a:g}' for a in self.alphas.tolist())}"

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"factor": self.factor, "alphas": self.alphas.tolist()}

    def _pool(self, x: Tensor) -> Tensor:
        for dim in range(2, x.ndim):
            x = x.unflatten(dim, (-1, self.factor)).mean(dim=dim + 1)
        return x


def downsample(factor: int, alphas: Sequence[float] = (1.0,)) -> Downsample:
    """Block means of sum_i alpha_i x_i: what super-resolution (of mixtures) undoes.

    Args:
        factor: Places per block along every dimension of the signal.
        alphas: A weight per source; one source by default.
    """
    return Downsample(factor, alphas)
