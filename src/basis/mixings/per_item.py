"""Plain mixtures whose weights are each item's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Mixing


class PerItemMixing(Mixing):
    """m = sum_i alpha_i x_i with other weights for every item of a batch.

    Args:
        alphas: (batch, sources).
    """

    def __init__(self, alphas: Tensor) -> None:
        alphas = torch.as_tensor(alphas, dtype=torch.float64).cpu()
        if alphas.ndim != 2 or not alphas.numel() or not torch.isfinite(alphas).all():
            raise BasisError(
                f"weights of every item must be finite, (batch, sources), not {tuple(alphas.shape)}"
            )
        if (alphas == 0).all(dim=1).any():
            raise BasisError("an item whose weights are all zero shows nothing of its sources")
        super().__init__(alphas.shape[1])
        self.alphas = alphas

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def select(self, index: Tensor | slice) -> PerItemMixing:
        return self._with(alphas=self.alphas[index])

    def forward(self, x: Tensor) -> Tensor:
        return (self._over(x) * x).sum(dim=1)

    def transpose(self, m: Tensor) -> Tensor:
        return self._over(m.unsqueeze(1)) * m.unsqueeze(1)

    def output_range(
        self, low: float | None, high: float | None
    ) -> tuple[float | None, float | None]:
        if low is None or high is None:
            return None, None
        above, below = self.alphas.clamp(min=0).sum(dim=1), self.alphas.clamp(max=0).sum(dim=1)
        return (
            (above * low + below * high).min().item(),
            (above * high + below * low).max().item(),
        )

    @property
    def interchangeable(self) -> Tensor:
        return (self.alphas[:, :, None] == self.alphas[:, None]).all(dim=0)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"alphas": self.alphas.tolist()}

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        gram = self.observe(self.gram_diagonal(x, variance))
        return self.diagonal_posterior_mean(x, m, gram, variance, noise)

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        return (self._over(x).square() * variance).sum(dim=1)

    def _over(self, x: Tensor) -> Tensor:
        """The weights in the shape of sources, (batch, sources, 1, ...)."""
        return self.alphas.to(x).reshape(*self.alphas.shape, *[1] * (x.ndim - 2))
