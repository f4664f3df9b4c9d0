"""Random numbers that depend on an item and on nothing else."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


class Noise:
    """Random numbers from one generator per item, so that no item depends on its batch.

    Args:
        seeds: One integer per item.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        # On the CPU whatever the device, so that a seed means the same everywhere.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers in the shape, precision and place of `like` (batch first)."""
        # float32 whatever the precision, so that a seed means the same in float64.
        out = torch.empty(like.shape, dtype=torch.float32)
        for row, generator in zip(out, self.generators, strict=True):
            row.normal_(generator=generator)
        return out.to(like)

    def uniform(self, like: Tensor) -> Tensor:
        """Numbers uniform in [0, 1), as in `normal`."""
        out = torch.empty(like.shape, dtype=torch.float32)
        for row, generator in zip(out, self.generators, strict=True):
            row.uniform_(generator=generator)
        return out.to(like)


def item_seeds(
    observation: Tensor,
    samples: int,
    seed: int,
    label: str = "",
    occurrences: Sequence[int] | None = None,
) -> list[list[int]]:
    """Seeds per item and sample that depend on what is observed, not on its place in a batch.

    Equal observations in one batch are told apart by counting them, so that repeating a mixture
    gives independent draws.

    Args:
        observation: (batch, *observed).
        samples: Seeds per item.
        seed: The seed of the run.
        label: What the numbers are for, so that two uses in one run do not share them.
        occurrences: How often each item has come before; counted within the batch by default.

    Returns:
        For each item of the batch, a list of `samples` seeds.
    """
    met: Counter[bytes] = Counter()
    seeds = []
    for place, item in enumerate(observation.detach().to("cpu", torch.float32)):
        content = content_digest(item)
        before = met[content] if occurrences is None else occurrences[place]
        row = []
        for sample in range(samples):
            key = f"{seed}/{before}/{sample}/{label}".encode() + content
            row.append(int.from_bytes(hashlib.sha256(key).digest()[:8], "little") >> 1)
        met[content] += 1
        seeds.append(row)
    return seeds


def content_digest(item: Tensor) -> bytes:
    """What tells an observation from others: the SHA-256 of its values in float32."""
    values = item.detach().to("cpu", torch.float32).contiguous()
    return hashlib.sha256(values.numpy().tobytes()).digest()
