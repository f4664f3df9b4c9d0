"""Supervised regression on mixtures, with permutation-invariant training.

Yu et al., arXiv:1607.00325.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from basis.baselines._baseline import (
    Baseline,
    FitOptions,
    draw_mixture,
    require_fit,
    require_pictures,
)
from basis.baselines._separator import Separator, train


class Regression(Baseline):
    """A U-Net trained on mixtures to answer with the sources, in whichever order fits best.

    Args:
        images: Mixtures seen at size 1.
        batch: Mixtures per step.
    """

    title = "Supervised U-Net"
    reference = "permutation-invariant training, Yu et al., arXiv:1607.00325"
    supervised = True

    def __init__(self, images: int = 40_000, batch: int = 128) -> None:
        super().__init__()
        self.images, self.batch = images, batch
        self.network: Separator | None = None

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        require_pictures(self, groups[0])
        torch.manual_seed(options.seed)
        network = Separator(groups[0].shape[1], len(groups))
        generator = torch.Generator().manual_seed(options.seed)

        def loss() -> Tensor:
            sources, mixture = draw_mixture(groups, self.batch, generator)
            return invariant_error(network(mixture), sources)

        train(network, loss, options.steps(self.images, self.batch), options.on_progress)
        self.network = network

    @torch.no_grad()
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, self.network is not None)
        assert self.network is not None
        return torch.cat([self.network(m) for m in mixture.split(256)])


def invariant_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error under each item's best order of the sources."""
    errors = (estimate[:, :, None] - truth[:, None]).square().flatten(3).mean(dim=3)
    k = errors.shape[1]
    orders = torch.tensor(list(itertools.permutations(range(k))), device=errors.device)
    totals = errors[:, torch.arange(k, device=errors.device), orders].mean(dim=2)
    return totals.amin(dim=1).mean()
