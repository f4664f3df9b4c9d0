"""Mixtures made from known sources, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.files import memory_left

if TYPE_CHECKING:
    from basis.signals.places import ImageSet


MOST = 10_000_000
"""The longest draw: minutes, and hundreds of megabytes."""
Protocol = Literal["agnostic", "split"]
"""Any two images, or one of each half of the classes."""

GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "mnist": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
    "sample": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
    # animals (bird, cat, deer, dog, frog, horse) with vehicles (airplane, automobile, ship, truck)
    "cifar10": ((2, 3, 4, 5, 6, 7), (0, 1, 8, 9)),
    "sample-photos": ((2, 3, 4, 5, 6, 7), (0, 1, 8, 9)),
}
"""The two groups of classes that "split" pairs are made of."""


@dataclass(frozen=True)
class Pairs:
    """Sources that were mixed, with where they come from.

    Attributes:
        sources: (count, k, channels, *size).
        indices: (count, k): the indices of the images in their set.
    """

    sources: Tensor
    indices: Tensor

    def mix(self, alphas: Sequence[float]) -> Tensor:
        """sum_i alpha_i x_i: (count, channels, *size)."""
        weights = torch.as_tensor(alphas, dtype=self.sources.dtype, device=self.sources.device)
        if weights.shape != self.sources.shape[1:2]:
            raise BasisError(
                f"{weights.numel()} alphas for {self.sources.shape[1]} sources; give one for each"
            )
        return torch.tensordot(weights, self.sources, dims=([0], [1]))

    def average(self) -> Tensor:
        """The estimate without a prior: every source is the mean of the sources."""
        k = self.sources.shape[1]
        return (self.mix((1.0,) * k) / k)[:, None].expand(self.sources.shape)


def draw_pairs(
    images: ImageSet, count: int, *, k: int = 2, protocol: Protocol = "agnostic", seed: int = 0
) -> Pairs:
    """Draws mixtures of k different images each; the arguments are those of `draw_indices`."""
    left, need = memory_left(), 4 * count * k * images.images[0].numel()
    if left is not None and need > left:
        raise BasisError(
            f"{count} mixtures of {k} images take {need / 1e9:.1f} GB of memory, and "
            f"{left / 1e9:.1f} GB are left; ask for fewer, or separate them as a job"
        )
    indices = draw_indices(images, count, k=k, protocol=protocol, seed=seed)
    return Pairs(images.floats(indices.flatten()).unflatten(0, (count, k)), indices)


def draw_indices(
    images: ImageSet, count: int, *, k: int = 2, protocol: Protocol = "agnostic", seed: int = 0
) -> Tensor:
    """Draws which k different images each of `count` mixtures is made of: (count, k).

    Args:
        images: Where to draw from.
        count: How many mixtures. The first n of a longer draw are those of a shorter one.
        k: Images per mixture.
        protocol: "agnostic" takes any images; "split" takes one of each group in `GROUPS`.
        seed: Seed of the draw.
    """
    if count < 1 or k < 1:
        raise BasisError(
            f"the number of mixtures and of sources must be at least 1, not {count}, {k}"
        )
    if count > MOST:
        raise BasisError(f"at most {MOST:,} mixtures are drawn, not {count}")
    if protocol not in ("agnostic", "split"):
        raise BasisError(f"unknown protocol {protocol!r}: give agnostic or split")
    generator = torch.Generator().manual_seed(seed)
    if protocol == "split":
        pools = _group_pools(images, k)
        draws = [[int(_pick(pool, generator)) for pool in pools] for _ in range(count)]
    else:
        if len(images) < k:
            raise BasisError(f"{images.name} has {len(images)} images, too few for {k} sources")
        draws = []
        while len(draws) < count:
            if k * k > 2 * len(images):  # so many at random are hardly ever all different
                row = torch.randperm(len(images), generator=generator)[:k].tolist()
            else:
                row = torch.randint(len(images), (k,), generator=generator).tolist()
            if len(set(row)) == k:
                draws.append(row)
    return torch.tensor(draws)


def _group_pools(images: ImageSet, k: int) -> list[Tensor]:
    groups = GROUPS.get(images.name)
    if groups is None or images.labels is None:
        raise BasisError(f"{images.name} has no class groups; split pairs need {', '.join(GROUPS)}")
    if k != len(groups):
        raise BasisError(f"split pairs have {len(groups)} sources, not {k}")
    return [torch.isin(images.labels, torch.tensor(g)).nonzero().flatten() for g in groups]


def _pick(pool: Tensor, generator: torch.Generator) -> Tensor:
    return pool[torch.randint(len(pool), (), generator=generator)]
