"""Convolutional NMF: parts that may lie anywhere.

Smaragdis 2004; in two dimensions, Mørup and Schmidt 2006.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis._tensors import per_item
from basis.baselines._baseline import (
    Baseline,
    FitOptions,
    fit_each_group,
    require_fit,
    require_non_negative,
    require_pictures,
)

_TINY = 1e-8


class ConvNMF(Baseline):
    """A dictionary of small non-negative patches per source, with weights at every pixel.

    Patches and weights are found by multiplicative updates of the squared error, in batches of
    training images.

    Args:
        parts: Patches in a dictionary.
        side: Pixels per side of a patch.
        sparsity: Weight of the sum of all activations, which keeps one patch from explaining all.
        steps: Updates per mixture.
    """

    title = "Convolutional NMF"
    reference = "Smaragdis, ICA 2004; Mørup and Schmidt 2006"

    def __init__(
        self, parts: int = 24, side: int = 9, sparsity: float = 0.02, steps: int = 100
    ) -> None:
        super().__init__()
        self.parts, self.side, self.sparsity, self.steps = parts, side, sparsity, steps
        self.dictionaries = nn.ParameterList()

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        learned = fit_each_group(groups, options, self._learn)
        self.dictionaries = nn.ParameterList(nn.Parameter(d, requires_grad=False) for d in learned)

    def _learn(self, images: Tensor, options: FitOptions) -> Tensor:
        require_pictures(self, images)
        require_non_negative(self, images)
        generator = torch.Generator().manual_seed(options.seed)
        shape = (self.parts, images.shape[1], self.side, self.side)
        patches = _unit(torch.rand(shape, generator=generator))
        above, below = torch.zeros(shape), torch.zeros(shape)
        batches = max(3, int(60 * options.size))
        for batch in range(batches):
            x = images[torch.randint(len(images), (64,), generator=generator)]
            weights = self._weights(x, patches, 30, generator)
            # Old batches are forgotten slowly: the online form of the update.
            above = 0.9 * above + self._correlate(x, weights)
            below = 0.9 * below + self._correlate(self._place(weights, patches), weights)
            patches = _unit(patches * above / (below + _TINY))
            options.on_progress((batch + 1) / batches)
        return patches

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, self.dictionaries)
        generator = torch.Generator().manual_seed(seed)
        patches = torch.cat(list(self.dictionaries))
        weights = self._weights(mixture, patches, self.steps, generator)
        parts = weights.split([len(d) for d in self.dictionaries], dim=1)
        placed = [self._place(w, d) for w, d in zip(parts, self.dictionaries, strict=True)]
        explained = torch.stack(placed, dim=1) + _TINY
        return explained / explained.sum(dim=1, keepdim=True) * mixture[:, None]

    def _weights(
        self, x: Tensor, patches: Tensor, steps: int, generator: torch.Generator
    ) -> Tensor:
        """How strongly every patch lies at every pixel, (batch, parts, height, width)."""
        shape = (len(x), len(patches), *x.shape[2:])
        weights = 0.1 * torch.rand(shape, generator=generator).to(x)
        pad = self.side // 2
        target = F.conv2d(x, patches, padding=pad)
        for _ in range(steps):
            now = F.conv2d(self._place(weights, patches), patches, padding=pad)
            weights = weights * target / (now + self.sparsity + _TINY)
        return weights

    def _place(self, weights: Tensor, patches: Tensor) -> Tensor:
        """The image that weights and patches make: (batch, channels, height, width)."""
        return F.conv_transpose2d(weights, patches, padding=self.side // 2)

    def _correlate(self, x: Tensor, weights: Tensor) -> Tensor:
        """Sum over images of x around each weight: (parts, channels, side, side)."""
        spread = F.pad(x, (self.side // 2,) * 4).transpose(0, 1)
        out = F.conv2d(spread, weights.transpose(0, 1))
        return out.transpose(0, 1)


def _unit(patches: Tensor) -> Tensor:
    """Patches of norm one: their scale belongs to the weights."""
    return patches / per_item(patches.flatten(1).norm(dim=1), patches).clamp_min(_TINY)
