"""The simplest answer: every source is the mixture divided by the number of sources."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from basis.baselines._baseline import Baseline, FitOptions


class Average(Baseline):
    """The mixture divided by the number of sources, for signals of any shape."""

    title = "Average"

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        self.k = len(groups)

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        return (mixture / self.k)[:, None].repeat_interleave(self.k, dim=1)
