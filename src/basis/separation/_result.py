"""What `separate` returns, and what it reports on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from basis.separation._order import align


@dataclass(frozen=True)
class Progress:
    """Passed to a progress callback after every step.

    Attributes:
        done, total: Steps done of all, over all chunks.
        sigma: The noise level.
        state: The chains of the chunk that took the step, (mixtures, chains, k, channels, *size),
            noise and all; None where there are none to show. It is the sampler's own: read it in
            the callback, or copy it.
    """

    done: int
    total: int
    sigma: float
    state: Tensor | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Result:
    """What `separate` found.

    Attributes:
        sources: The separated sources in the priors' range, (batch, k, channels, *size): the chosen
            sample, or with an effort the mean about it.
        samples: Every sample drawn, (batch, samples, k, channels, *size); with an effort, those of
            the first round.
        energies: What the choice was made by, (batch, samples), in nats up to a constant; the least
            is the best. All zero where nothing was to be chosen.
        residual: Root mean square of m - A x for `sources`, (batch,).
        spent: Network evaluations spent on each mixture, all samples counted, (batch,).
        settings: Prior, mixing and sampler in full, with the versions that ran them.
        seed: The seed everything was drawn from.
        seconds: Time it took.
        exchangeable: Which sources have the same prior and weight in the mixture, so that they have
            no order of their own: (k, k) of bool.
        kept: States at the end of the noise levels asked for: sigma to (batch, samples, k, ...),
            not clamped.
    """

    sources: Tensor
    samples: Tensor
    energies: Tensor
    residual: Tensor
    spent: Tensor
    settings: dict[str, Any]
    seed: int
    seconds: float
    exchangeable: Tensor
    kept: dict[float, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.sources.shape))
        return (
            f"Result(sources {shape}, {self.evaluations} evaluations per mixture, "
            f"{self.seconds:.1f} s)"
        )

    @property
    def evaluations(self) -> int:
        """Network evaluations spent per mixture: the mean over mixtures, rounded up."""
        return math.ceil(self.spent.double().mean().item())

    @property
    def mean(self) -> Tensor:
        """The mean over samples, sources that can be exchanged first put in the first's order."""
        first = self.samples[:, 0]
        aligned = [align(s, first, self.exchangeable) for s in self.samples.unbind(1)]
        return torch.stack(aligned).mean(dim=0)
