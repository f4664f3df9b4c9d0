"""Colorization of photos of any size with a prior of small color images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from basis._inputs import PriorLike, check_count, load_priors
from basis._separate import separate_batch
from basis.errors import BasisError
from basis.mixings.matrix import grey as grey_mixing
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled, large_enough
from basis.progress import Callback
from basis.result import Result
from basis.samplers.ancestral import Ancestral
from basis.samplers.sampler import Sampler
from basis.search.plan import Plan
from basis.settings import Estimate
from basis.signals.observation import Observation, Source, as_observation

PREVIEW_STEPS = 14
"""Sampling steps of a preview."""
_CANDIDATES = 3  # samples drawn for each one that is kept if they are to be diverse
_GRID = 8  # colors of two samples are compared on a grid of this size


def colorize(
    photo: Source | Sequence[Source],
    prior: PriorLike = "cifar10",
    *,
    samples: int | None = None,
    size: int = 64,
    diverse: bool = False,
    preview: bool = False,
    saturation: float = 1.0,
    method: str | int | Sampler | Plan | None = None,
    estimate: Estimate = "mode",
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    progress: bool | Callback | None = None,
) -> Result:
    """Adds colors to grey photos.

    Colors are sampled at most `size` pixels along the longer side, through overlapping tiles if
    that is more than the prior's size, and added to the photo at its own size: the grey values of
    the photo are kept, and the eye takes the detail from them. If several samples are drawn, the
    most probable comes first.

    Args:
        photo: A path, picture, array or tensor, or a list of these, as for `separate`; of color
            pictures the mean over channels is used. Values are in [0, 1].
        prior: A prior of color images, its name or its folder.
        samples: The number of colorizations in `Result.samples`; one, in `sources`, by default.
        size: The longest side at which colors are sampled; at least the size of the prior.
        diverse: Draw three times as many samples and keep the most probable one and those whose
            colors differ most from it and from each other.
        preview: A rough answer in seconds: few steps at the size of the prior.
        saturation: Factor on the colors. Those of the prior `cifar10` are slightly pale; 1.15
            brings them closer to photos.
        method: As for `separate`; by default the ancestral sampler.
        estimate, seed, device, batch_size, workers, progress: As for `separate`.

    Returns:
        A result whose `sources` are (batch, 1, 3, height, width) in [0, 1], at the size of the
        photo. Their channel mean is the photo wherever the range of values allows it.
    """
    return colorize_batch(**locals())


def colorize_batch(
    photo: Source | Sequence[Source],
    prior: PriorLike = "cifar10",
    *,
    samples: int | None = None,
    size: int = 64,
    diverse: bool = False,
    preview: bool = False,
    saturation: float = 1.0,
    method: str | int | Sampler | Plan | None = None,
    estimate: Estimate = "mode",
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 128,
    workers: int | None = None,
    progress: bool | Callback | None = None,
    occurrences: Sequence[int] | None = None,
) -> Result:
    """`colorize` for a part of something larger; see `separate_batch`."""
    loaded = load_priors(prior, device)[0]
    check_count("samples", samples)
    wanted = samples or 1
    if diverse and wanted < 2:
        raise BasisError(f"diverse needs samples of at least 2, not {samples}")
    if preview and method is not None:
        raise BasisError("preview has its own method: give one of the two")
    number = isinstance(saturation, int | float)
    if not (number and math.isfinite(saturation) and saturation >= 0):
        raise BasisError(f"saturation must be a number of at least 0, not {saturation!r}")
    check_count("size", size)
    channels, *tile = loaded.shape
    if channels != 3 or len(tile) != 2:
        raise BasisError(
            f"colorization needs a prior of color images; signals of {loaded.name!r} have shape "
            f"{loaded.shape}"
        )
    given = as_observation(photo, loaded.shape)
    if given.values.ndim != 4 or given.values.shape[1] not in (1, 3):
        raise BasisError(
            "photos must be (batch, 1, height, width) or (batch, 3, height, width), not "
            f"{tuple(given.values.shape)}"
        )
    grey = given.values.mean(dim=1, keepdim=True) if given.values.shape[1] == 3 else given.values
    height, width = grey.shape[2:]
    longest = max(tile) if preview else max(size, *tile)
    scale = min(1.0, longest / max(height, width))
    small = (max(tile[0], round(height * scale)), max(tile[1], round(width * scale)))
    seen = grey
    if small != (height, width):
        seen = F.interpolate(grey, size=small, mode="bicubic", antialias=True).clamp(0, 1)
    tiled = large_enough([loaded], small)[0]
    if method is None:
        method = color_sampler(tiled, PREVIEW_STEPS if preview else None)
    search = not isinstance(method, Sampler)
    # A search draws samples in addition to its answer, which is the only colorization by default.
    count = None if search and samples is None else wanted * (_CANDIDATES if diverse else 1)
    result = separate_batch(
        Observation(seen, batched=True, names=given.names),
        tiled,
        mixing=grey_mixing(),
        method=method,
        estimate=estimate,
        samples=count,
        seed=seed,
        batch_size=batch_size,
        workers=workers,
        progress=progress,
        occurrences=occurrences,
    )
    colors = (result.sources if result.samples is None else result.samples[:, :, 0]) - seen[:, None]
    energies = result.energies
    if result.samples is not None:
        if search:  # its energies belong to its chains, not to the samples
            energies = energies.new_zeros(colors.shape[:2])
        order = energies.argsort(dim=1, stable=True)
        if colors.shape[1] > wanted:
            order = far_apart(colors, energies, wanted)
        rows = torch.arange(len(order))[:, None]
        colors, energies = colors[rows, order], energies[rows, order]
    if small != (height, width):
        flat = F.interpolate(colors.flatten(0, 1), size=(height, width), mode="bicubic")
        colors = flat.unflatten(0, colors.shape[:2])
        colors = colors - colors.mean(dim=2, keepdim=True)
    colored = add_colors(grey[:, None], saturation * colors)
    mixing = grey_mixing().fit((3, height, width))
    sources = colored[:, :1]
    return replace(
        result,
        sources=sources,
        samples=None if samples is None else colored[:, :, None],
        observation=grey,
        mixing=mixing,
        energies=energies,
        residual=(mixing.residual(sources, grey.to(sources))).flatten(1).square().mean(1).sqrt(),
        trajectory={},
    )


def color_sampler(prior: Prior, steps: int | None = None) -> Ancestral:
    """The sampler of colors: ancestral, from a noise level at which no hue is visible.

    `gibbs` draws pixels independently given the noisy image, which makes colors pale, because
    pixels share their hue. Tiles have to agree on a hue as well, which takes twice as many steps
    and more fresh noise.
    """
    tiled = isinstance(prior, Tiled)
    return Ancestral(
        steps=steps or (98 if tiled else 49),
        sigma_max=min(5.0, prior.sigma_max),
        sigma_min=max(0.01, prior.sigma_min),
        churn=3.0 if tiled else 1.0,
    )


def add_colors(grey: Tensor, colors: Tensor) -> Tensor:
    """grey + colors, with the colors of each pixel scaled down as far as [0, 1] requires.

    Args:
        grey: (batch, samples, 1, height, width), or a shape that broadcasts to it.
        colors: (batch, samples, 3, height, width), with mean zero over the channels.
    """
    above = (1 - grey) / colors.amax(dim=2, keepdim=True).clamp_min(1e-6)
    below = grey / (-colors).amax(dim=2, keepdim=True).clamp_min(1e-6)
    return (grey + colors * torch.minimum(above, below).clamp(0, 1)).clamp(0, 1)


def far_apart(colors: Tensor, energies: Tensor, count: int) -> Tensor:
    """The indices of samples with different colors, the most probable first: (batch, count).

    The most probable one is kept first, then one at a time the one farthest from those kept.
    Improbable ones are not excluded: the energy seems to prefer pale colors, so what remained would
    look alike.

    Args:
        colors: What was added to the grey, (batch, samples, 3, height, width).
        energies: (batch, samples), the least is the most probable.
        count: How many to keep.
    """
    order = energies.argsort(dim=1, stable=True)
    rows = torch.arange(len(order))[:, None]
    # Colors of regions and not of pixels: grain would make any two samples seem far apart.
    regions = F.adaptive_avg_pool2d(colors.flatten(0, 1), _GRID)
    regions = regions.unflatten(0, colors.shape[:2])[rows, order].flatten(2)
    distances = torch.cdist(regions.double(), regions.double())
    chosen = torch.zeros(len(order), 1, dtype=torch.long)
    nearest = distances[:, 0]
    for _ in range(count - 1):
        # A chosen sample must not be chosen twice if all are alike.
        nearest = nearest.scatter(1, chosen, -1.0)
        chosen = torch.cat([chosen, nearest.argmax(dim=1, keepdim=True)], dim=1)
        nearest = torch.minimum(nearest, distances[torch.arange(len(order)), chosen[:, -1]])
    return order.gather(1, chosen.sort(dim=1).values)
