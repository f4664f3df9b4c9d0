"""Plain supervised regression on mixtures, with permutation-invariant training (Yu et al., arXiv:1607.00325)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from basis.baselines._baseline import Baseline, Job, draw_mixture
from basis.baselines._separator import Separator, train


class Regression(Baseline):
    """A U-Net trained on mixtures of the task to answer with the sources, in whichever order fits best.

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

    def fit(self, groups: Sequence[Tensor], job: Job) -> None:
        torch.manual_seed(job.seed)
        network = Separator(groups[0].shape[1], len(groups))
        generator = torch.Generator().manual_seed(job.seed)

        def loss() -> Tensor:
            sources, mixture = draw_mixture(groups, self.batch, generator)
            return invariant_error(network(mixture), sources)

        train(network, loss, job.steps(self.images, self.batch), job.tell)
        self.network = network

    @torch.no_grad()
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        assert self.network is not None, "fit it first"
        return torch.cat([self.network(m) for m in mixture.split(256)])


def invariant_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error under each item's best order of the sources."""
    errors = (estimate[:, :, None] - truth[:, None]).square().flatten(3).mean(dim=3)
    k = errors.shape[1]
    orders = torch.tensor(list(itertools.permutations(range(k))), device=errors.device)
    totals = errors[:, torch.arange(k, device=errors.device), orders].mean(dim=2)
    return totals.amin(dim=1).mean()
