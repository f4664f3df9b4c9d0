"""Random numbers that depend only on the item, not on its batch."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


class Noise:
    """Random numbers from one generator per item, independent of its batch.

    Args:
        seeds: One integer per item.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        # On the CPU whatever the device, so that a seed means the same everywhere.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers with shape, dtype and device of `like` (batch first)."""
        # float32 whatever the precision, so that a seed means the same in float64.
        out = torch.empty(like.shape, dtype=torch.float32)
        for item, generator in zip(out, self.generators, strict=True):
            item.normal_(generator=generator)
        return out.to(like)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers in [0, 1), as in `normal`."""
        out = torch.empty(like.shape, dtype=torch.float32)
        for item, generator in zip(out, self.generators, strict=True):
            item.uniform_(generator=generator)
        return out.to(like)


def item_seeds(
    observation: Tensor,
    samples: int,
    seed: int,
    label: str = "",
    occurrences: Sequence[int] | None = None,
) -> list[list[int]]:
    """Seeds per item and sample that depend on the observation, not on its position in a batch.

    Equal observations in one batch are told apart by counting them, so that repeating a mixture
    gives independent samples.

    Args:
        observation: (batch, *observed).
        samples: Seeds per item.
        seed: The seed of the run.
        label: What the numbers are for; different labels give independent numbers.
        occurrences: How many equal observations precede each item; counted within the batch by
            default.

    Returns:
        For each item of the batch, a list of `samples` seeds.
    """
    seen: Counter[bytes] = Counter()
    seeds = []
    for index, item in enumerate(observation.detach().to("cpu", torch.float32)):
        content = content_digest(item)
        occurrence = seen[content] if occurrences is None else occurrences[index]
        keys = [f"{seed}/{occurrence}/{sample}/{label}".encode() for sample in range(samples)]
        digests = [hashlib.sha256(key + content).digest() for key in keys]
        seeds.append([int.from_bytes(digest[:8], "little") >> 1 for digest in digests])
        seen[content] += 1
    return seeds


def content_digest(item: Tensor) -> bytes:
    """The SHA-256 of an observation's values in float32."""
    values = item.detach().to("cpu", torch.float32).contiguous()
    return hashlib.sha256(values.numpy().tobytes()).digest()
