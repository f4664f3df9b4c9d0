"""Non-negative matrix factorisation: each source is a sum of learned parts (Lee and Seung, Nature 401, 1999)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from basis.baselines._base import Baseline, Tell

_TINY = 1e-8


class NMF(Baseline):
    """A dictionary of parts per source, learned by scikit-learn; a mixture is explained by all of them together.

    What every dictionary explains is then scaled so that the sources add up to the mixture. With the same dictionary for all sources
    (a class-agnostic task) nothing tells them apart but the random start.

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

    def fit(
        self,
        groups: Sequence[Tensor],
        *,
        size: float = 1.0,
        seed: int = 0,
        tell: Tell = lambda share: None,
    ) -> None:
        import warnings

        from sklearn.decomposition import MiniBatchNMF
        from sklearn.exceptions import ConvergenceWarning

        learned: list[Tensor] = []
        for number, group in enumerate(groups):
            same = next((i for i in range(number) if groups[i] is group), None)
            if same is not None:
                learned.append(learned[same])
                continue
            count = max(self.parts, int(len(group) * min(1.0, size)))
            model = MiniBatchNMF(
                self.parts, batch_size=1024, max_iter=max(2, int(20 * size)), random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the length is our choice
                model.fit(group[:count].flatten(1).double().numpy())
            learned.append(torch.from_numpy(model.components_).float())
            tell((number + 1) / len(groups))
        self.dictionaries = nn.ParameterList(nn.Parameter(d, requires_grad=False) for d in learned)

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        parts = torch.cat(list(self.dictionaries))  # (all parts, pixels)
        flat = mixture.flatten(1)
        generator = torch.Generator().manual_seed(seed)
        weights = torch.rand(len(flat), len(parts), generator=generator).to(flat) + 0.1
        target, gram = flat @ parts.T, parts @ parts.T
        for _ in range(self.steps):
            weights = weights * target / (weights @ gram + _TINY)
        pieces = weights.split([len(d) for d in self.dictionaries], dim=1)
        explained = torch.stack(
            [w @ d for w, d in zip(pieces, self.dictionaries, strict=True)], dim=1
        )
        share = (explained + _TINY) / (explained + _TINY).sum(dim=1, keepdim=True)
        return (share * flat[:, None]).unflatten(2, mixture.shape[1:])
