"""Plain mixtures whose alphas differ from item to item."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Bounds, Mixing, linear_range


class PerItemMixing(Mixing):
    """m = sum_i alpha_i x_i with other alphas for every item of a batch.

    Args:
        alphas: (batch, sources).
    """

    diagonal = True

    def __init__(self, alphas: Tensor) -> None:
        alphas = torch.as_tensor(alphas, dtype=torch.float64).cpu()
        if alphas.ndim != 2 or not alphas.numel() or not torch.isfinite(alphas).all():
            raise BasisError(
                f"alphas must be finite and (batch, sources), not of shape {tuple(alphas.shape)}"
            )
        if (alphas == 0).all(dim=1).any():
            raise BasisError("alphas must not all be zero for an item")
        super().__init__(alphas.shape[1])
        self.alphas = alphas

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def select(self, index: Tensor | slice) -> PerItemMixing:
        return self._with(alphas=self.alphas[index])

    def forward(self, x: Tensor) -> Tensor:
        return (self._shaped_as(x) * x).sum(dim=1)

    def transpose(self, m: Tensor) -> Tensor:
        return self._shaped_as(m.unsqueeze(1)) * m.unsqueeze(1)

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        return (self._shaped_as(x).square() * variance).sum(dim=1)

    def output_range(self, value_range: Bounds) -> Bounds:
        return linear_range(self.alphas, value_range)

    @property
    def interchangeable(self) -> Tensor:
        return (self.alphas[:, :, None] == self.alphas[:, None]).all(dim=0)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"alphas": self.alphas.tolist()}

    def _shaped_as(self, x: Tensor) -> Tensor:
        """The alphas shaped to broadcast over sources, (batch, sources, 1, ...)."""
        return self.alphas.to(x).reshape(*self.alphas.shape, *[1] * (x.ndim - 2))
