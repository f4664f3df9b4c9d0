"""Non-negative matrix factorisation: each source is a sum of learned parts.

Lee and Seung, Nature 401, 1999.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from basis._errors import BasisError
from basis.baselines._baseline import (
    Baseline,
    FitOptions,
    fit_each_group,
    require_fit,
    require_non_negative,
)

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
