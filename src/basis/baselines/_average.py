"""The least one can do: every source is the mixture divided by their number."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from basis.baselines._baseline import Baseline, Job


class Average(Baseline):
    """The mixture divided by the number of sources."""

    title = "Average"

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k

    def fit(self, groups: Sequence[Tensor], job: Job) -> None:
        self.k = len(groups)

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        return (mixture / self.k)[:, None].repeat(1, self.k, 1, 1, 1)
