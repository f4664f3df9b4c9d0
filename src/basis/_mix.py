"""Mixtures made from known sources, for examples, tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.files import memory_left
from basis.mixings.matrix import mixture
from basis.signals.arrays import SOUND_CHANNELS, as_floats, as_tensor
from basis.signals.datasets import load_image, load_images
from basis.signals.observation import Observation, as_observation, read

if TYPE_CHECKING:
    from basis.signals.image_set import ImageSet

MOST = 10_000_000
"""The largest number of mixtures; more would take minutes and hundreds of megabytes."""
Protocol = Literal["agnostic", "split"]
"""Any two images, or one of each group of classes."""

GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "mnist": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
    "sample": ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)),
    # animals (bird, cat, deer, dog, frog, horse) with vehicles (airplane, automobile, ship, truck)
    "cifar10": ((2, 3, 4, 5, 6, 7), (0, 1, 8, 9)),
    "sample-photos": ((2, 3, 4, 5, 6, 7), (0, 1, 8, 9)),
}
"""The two groups of classes of "split" pairs."""


def mix(
    sources: Tensor | np.ndarray | Sequence[Any],
    alphas: Sequence[float] | None = None,
    *,
    noise: float = 0.0,
    clip: bool = False,
    grey: bool = False,
    color: bool = False,
    size: int | tuple[int, int] | None = None,
    seed: int = 0,
    root: str | Path | None = None,
) -> Observation:
    """Adds sources to a mixture: sum_i alpha_i x_i.

    Args:
        sources: A list, one per alpha: paths, pictures, arrays or tensors, or images of a
            data set such as "sample:3". Or an array or tensor of k sources, or of a
            batch of them, (batch, k, channels, *size): five axes are a batch of pictures, and
            (batch, k, 1, length) or (batch, k, 2, length) a batch of sound.
        alphas: The mixing coefficients; 1 for every source by default.
        noise: Standard deviation of Gaussian noise that is added.
        clip: Clip the mixture to [0, 1], as in a picture file.
        grey, color, size: Convert the sources as `basis.read` does.
        seed: The seed of the noise.
        root: The data folder, for images of a data set.

    Returns:
        An observation that knows its sources and alphas; `save` writes it to a file.
    """
    asked: dict[str, Any] = {"grey": grey, "color": color, "size": size}
    if isinstance(sources, np.ndarray):
        sources = as_tensor(sources, "the sources")
    if isinstance(sources, Tensor) and _is_batch(sources):
        x = as_floats(sources, "the sources", double=True)
        if any(asked.values()):
            flat = read(Observation(x.flatten(0, 1), batched=True), **asked).values
            x = flat.unflatten(0, tuple(x.shape[:2]))
    else:
        if not isinstance(sources, Tensor | list | tuple) or not len(sources):
            raise BasisError(f"sources must be a list, an array or a tensor, not {sources!r:.60}")
        each = [_source(one, root, asked) for one in sources]
        for one, name in zip(each, sources, strict=True):
            if one.shape != each[0].shape:
                raise BasisError(
                    f"sources must have one shape; {_name(sources[0])} is "
                    f"{tuple(each[0].shape)}, {_name(name)} is {tuple(one.shape)}; size, grey and "
                    "color convert pictures"
                )
        x = torch.stack(each)[None]
    values = (1.0,) * x.shape[1] if alphas is None else tuple(alphas)
    if len(values) != x.shape[1]:
        raise BasisError(f"{len(values)} alphas for {x.shape[1]} sources; give one per source")
    mixed = add_noise(mixture(values, x.shape[2])(x), noise, seed)
    mixed = mixed.clamp(0, 1) if clip else mixed
    return Observation(
        mixed, batched=True, sources=x, alphas=torch.tensor(values, dtype=torch.float32)
    )


def test_mixtures(
    data: str | Path | ImageSet = "sample",
    count: int = 6,
    *,
    sources: int = 2,
    alphas: Sequence[float] | None = None,
    protocol: Protocol = "agnostic",
    noise: float = 0.0,
    seed: int = 0,
    root: str | Path | None = None,
) -> Observation:
    """Mixtures of random test images of a data set, by the protocol of the paper's tables.

    Args:
        data: A data set by name or folder; "sample" and "sample-photos" are part of the package.
        count: How many mixtures. The first n of a longer draw are those of a shorter one.
        sources: Images per mixture.
        alphas: The mixing coefficients; 1 for every source by default.
        protocol: "agnostic" mixes any images; "split" mixes one of each group of classes.
        noise: Standard deviation of Gaussian noise that is added.
        seed: The seed of the draw and of the noise.
        root: The data folder.
    """
    images = load_images(data, "test", root=root) if isinstance(data, str | Path) else data
    k = sources if alphas is None else len(alphas)
    pairs = draw_pairs(images, count, k=k, protocol=protocol, seed=seed)
    return mix(pairs.sources, alphas, noise=noise, seed=seed)


test_mixtures.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks


def add_noise(observation: Tensor, noise: float, seed: int) -> Tensor:
    """The observation with Gaussian noise of this standard deviation."""
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 <= noise < math.inf:
        raise BasisError(f"noise must be a number of at least 0, not {noise!r}")
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(observation.shape, generator=generator)
    return observation + noise * normal if noise else observation


def _is_batch(sources: Tensor) -> bool:
    """Whether sources are those of a batch of mixtures, and not of one."""
    return sources.ndim > 4 or (sources.ndim == 4 and sources.shape[2] in SOUND_CHANNELS)


def _source(source: Any, root: str | Path | None, asked: Mapping[str, Any]) -> Tensor:
    """One source, (channels, *size)."""
    image = load_image(source, root) if isinstance(source, str) else None
    if image is not None:
        source = Observation(image, batched=False)
    values = as_observation(read(source, **asked)).values
    if len(values) != 1:
        raise BasisError(f"{_name(source)} holds {len(values)} signals; one is needed here")
    return values[0]


def _name(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else "an array"


@dataclass(frozen=True)
class Pairs:
    """Sources of mixtures, and where they come from.

    Attributes:
        sources: (count, k, channels, *size).
        indices: (count, k): the indices of the images in their set.
    """

    sources: Tensor
    indices: Tensor

    def mix(self, alphas: Sequence[float]) -> Tensor:
        """sum_i alpha_i x_i: (count, channels, *size)."""
        values = torch.as_tensor(alphas, dtype=self.sources.dtype, device=self.sources.device)
        if values.shape != self.sources.shape[1:2]:
            raise BasisError(
                f"{values.numel()} alphas for {self.sources.shape[1]} sources; give one per source"
            )
        return torch.tensordot(values, self.sources, dims=([0], [1]))

    def average(self) -> Tensor:
        """The trivial baseline: every source is the mean of the sources."""
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
            f"{left / 1e9:.1f} GB are left; ask for fewer"
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
            if k * k > 2 * len(images):  # indices drawn independently would rarely be distinct
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
