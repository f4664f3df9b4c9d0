"""Non-negative matrix factorisation: each source is a sum of learned parts.

Lee and Seung, Nature 401, 1999.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.errors import BasisError
from basis.lab.baseline import (
    Baseline,
    FitOptions,
    fit_each_group,
    require_fit,
    require_non_negative,
    require_pictures,
)
from basis.tensors import per_item

_TINY = 1e-8


class NMF(Baseline):
    """A dictionary of parts per source, learned by scikit-learn; all explain a mixture together.

    What every dictionary explains is then scaled so that the sources add up to the mixture. With
    the same dictionary for all sources (a class-agnostic task) nothing tells them apart but the
    random start. Signals may have any shape.

    Args:
        parts: Columns of a dictionary.
        steps: Multiplicative updates per mixture.
    """

    title = "NMF"
    reference = "Lee and Seung, Nature 401, 1999"

    def __init__(self, parts: int = 100, steps: int = 300) -> None:
        super().__init__()
        self.parts, self.steps = parts, steps
        self.dictionaries = nn.ParameterList()

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        learned = fit_each_group(groups, options, self._learn)
        self.dictionaries = nn.ParameterList(nn.Parameter(d, requires_grad=False) for d in learned)

    def _learn(self, images: Tensor, options: FitOptions) -> Tensor:
        import warnings

        try:
            from sklearn.decomposition import MiniBatchNMF
            from sklearn.exceptions import ConvergenceWarning
        except ImportError as error:
            raise BasisError(
                "the baseline NMF needs scikit-learn: pip install 'basis-separation[baselines]'"
            ) from error

        require_non_negative(self, images)
        count = max(self.parts, int(len(images) * min(1.0, options.size)))
        rounds = max(2, int(20 * options.size))
        model = MiniBatchNMF(
            self.parts, batch_size=1024, max_iter=rounds, random_state=options.seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the length is our choice
            model.fit(images[:count].flatten(1).double().numpy())
        return torch.from_numpy(model.components_).float()

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, self.dictionaries)
        parts = torch.cat(list(self.dictionaries))  # (all parts, values of a signal)
        flat = mixture.flatten(1)
        generator = torch.Generator().manual_seed(seed)
        weights = torch.rand(len(flat), len(parts), generator=generator).to(flat) + 0.1
        target, gram = flat @ parts.T, parts @ parts.T
        for _ in range(self.steps):
            weights = weights * target / (weights @ gram + _TINY)
        split = weights.split([len(d) for d in self.dictionaries], dim=1)
        explained = torch.stack(
            [w @ d for w, d in zip(split, self.dictionaries, strict=True)], dim=1
        )
        share = (explained + _TINY) / (explained + _TINY).sum(dim=1, keepdim=True)
        return (share * flat[:, None]).unflatten(2, mixture.shape[1:])


_TINY_CONV_NMF = 1e-8


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
            patches = _unit(patches * above / (below + _TINY_CONV_NMF))
            options.on_progress((batch + 1) / batches)
        return patches

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, self.dictionaries)
        generator = torch.Generator().manual_seed(seed)
        patches = torch.cat(list(self.dictionaries))
        weights = self._weights(mixture, patches, self.steps, generator)
        parts = weights.split([len(d) for d in self.dictionaries], dim=1)
        placed = [self._place(w, d) for w, d in zip(parts, self.dictionaries, strict=True)]
        explained = torch.stack(placed, dim=1) + _TINY_CONV_NMF
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
            weights = weights * target / (now + self.sparsity + _TINY_CONV_NMF)
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
    return patches / per_item(patches.flatten(1).norm(dim=1), patches).clamp_min(_TINY_CONV_NMF)
