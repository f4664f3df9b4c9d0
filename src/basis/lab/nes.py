"""Supervised regression on mixtures, with permutation-invariant training.

Yu et al., arXiv:1607.00325.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from basis.lab.baseline import (
    Baseline,
    FitOptions,
    OnProgress,
    Separator,
    draw_mixture,
    require_fit,
    require_pictures,
    train,
)


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


class NES(Baseline):
    """One source (the first) is known from samples; the other is known from mixtures alone.

    Starting from half of each mixture as the guess of the unknown source, a network is trained on
    sums of known sources and guesses to tell them apart, then gives better guesses for the
    training mixtures, and so on. The supervised form knows samples of both and trains once: an
    upper bound.

    Args:
        supervised: Which of the two.
        rounds: Iterations of the semi-supervised form.
        images: Mixtures seen in all, at size 1: 40,000 where both are known, else 120,000, which
            rounds share.
        mixtures: Training mixtures of the semi-supervised form.
    """

    title = "NES"
    reference = "Halperin, Ephrat and Hoshen, arXiv:1811.12739"
    supervised = True

    def __init__(
        self,
        supervised: bool = False,
        rounds: int = 10,
        images: int | None = None,
        batch: int = 128,
        mixtures: int = 5_000,
    ) -> None:
        super().__init__()
        self.rounds, self.mixtures, self.batch = rounds, mixtures, batch
        self.images = images or (40_000 if supervised else 120_000)
        self.knows_both = supervised
        self.title = "NES, supervised" if supervised else "NES"
        self.network: Separator | None = None

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        require_pictures(self, groups[0])
        known, unknown = groups
        torch.manual_seed(options.seed)
        generator = torch.Generator().manual_seed(options.seed)
        if self.knows_both:
            steps = options.steps(self.images, self.batch)
            self.network = self._train(known, unknown, steps, generator, options.on_progress)
            return
        # From here on the second group serves to make mixtures, and is not looked at again.
        count = max(self.batch, int(options.size * self.mixtures))
        _, mixtures = draw_mixture(groups, count, generator)
        guess = mixtures / 2
        steps = options.steps(self.images, self.batch * self.rounds)
        for number in range(self.rounds):
            on_progress = options.part(number, self.rounds).on_progress
            self.network = self._train(known, guess, steps, generator, on_progress)
            guess = self.separate(mixtures)[:, 1]

    def _train(
        self,
        known: Tensor,
        other: Tensor,
        steps: int,
        generator: torch.Generator,
        on_progress: OnProgress,
    ) -> Separator:
        network = Separator(known.shape[1], 2)
        if self.network is not None:
            network.load_state_dict(self.network.state_dict())

        def loss() -> Tensor:
            sources, mixture = draw_mixture((known, other), self.batch, generator)
            return (network(mixture) - sources).square().mean()

        train(network, loss, steps, on_progress)
        return network

    @torch.no_grad()
    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, self.network is not None)
        assert self.network is not None
        return torch.cat([self.network(m) for m in mixture.split(256)])
