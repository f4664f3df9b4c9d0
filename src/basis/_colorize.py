"""Colourisation of photos of any size, with a prior of small ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from basis._inputs import PriorLike, as_prior, check_count
from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import grey as grey_mixing
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.progress import Progress
from basis.result import Result
from basis.signals.observation import MixtureFile, Observed, open_mixtures, read_observation

PREVIEW_STEPS = 14
"""Steps of a preview."""


def colorize(
    grey: Observed | Sequence[Observed],
    prior: PriorLike,
    *,
    side: int = 64,
    samples: int = 1,
    diverse: bool = False,
    preview: bool = False,
    vivid: float = 1.0,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
    **options: Any,
) -> tuple[Tensor, Result]:
    """Colours for grey photos whose channel mean they are.

    The colours are drawn at no more than `side` pixels along the longer side, through overlapping
    tiles where that is more than the prior was trained on, and laid over the photo at its own size:
    the eye takes its detail from the grey. Of several colourings the most plausible comes first, by
    the denoising energy, unless `choose` says otherwise or they are those of an effort.

    Args:
        grey: (batch, 1, height, width), in [0, 1], a tensor or a numpy array: the channel mean, not
            a weighted luminance. Or a photo as `separate` takes it: its path, a PIL image or an
            array (height, width); of a path or PIL image of a colour photo the channel mean is
            taken.
        prior: Of colour images, or its name or folder.
        side: Longest side that colours are drawn at; never below the prior's own.
        samples: Different colourings of each photo.
        diverse: Draw three times as many, and keep the most plausible one and those that are far
            from it and from each other in colour.
        preview: A look in seconds: few steps at the prior's own size, whatever `side` says.
        vivid: How many times as strong as they are drawn colours are laid over the grey. Those of
            the embedded photo prior are a little pale, and 1.15 brings them nearer to photos.
        device: Where to compute, as for `separate`.
        options: Of `separate`; a sampler or an effort, in place of what `colouring` says.

    Returns:
        (batch, samples, 3, height, width) in [0, 1], whose channel mean is `grey` wherever the
        range of colours allows it, and the result of the separation at the smaller size, its
        samples in the same order, with colours as they were drawn.
    """
    prior = as_prior(prior, device)
    samples = check_count("samples", samples) or 1
    drawn = colourings_drawn(samples, diverse)
    _check_preview(preview, options)
    if not (isinstance(vivid, int | float) and math.isfinite(vivid) and vivid >= 0):
        raise BasisError(f"vivid must be a number of 0 or more, not {vivid!r}")
    if not isinstance(side, int) or side < 1:
        raise BasisError(f"side must be a whole number of pixels, 1 or more, not {side!r}")
    channels, tile_height, tile_width = prior.shape
    if channels != 3:
        raise BasisError(
            f"colourisation needs a prior of colour images; {prior.name!r} is of {channels} channel"
        )
    photo = _photos(grey)
    height, width = photo.shape[2:]
    longest = max(tile_height, tile_width) if preview else max(side, tile_height, tile_width)
    share = min(1.0, longest / max(height, width))
    small = (max(tile_height, round(height * share)), max(tile_width, round(width * share)))
    seen = photo
    if small != (height, width):
        seen = F.interpolate(photo, size=small, mode="bicubic", antialias=True).clamp(0, 1)
    tiled = prior if small == (tile_height, tile_width) else Tiled(prior, *small)
    if not {"sampler", "effort"} & set(options):
        steps = {"steps": PREVIEW_STEPS} if preview else {}
        options = colouring(tiled, **steps) | options
    # An effort draws samples beside its answer; where one colouring is asked for, that is it.
    effort = options.get("effort") is not None
    answer = effort and samples == 1
    if drawn > 1 and not effort:
        options = {"choose": "energy"} | options
    result = separate(
        seen,
        tiled,
        mixing=grey_mixing(channels=3),
        samples=None if answer else drawn,
        seed=seed,
        progress=progress,
        **options,
    )
    if answer:
        colours = result.sources - seen[:, None]
    else:
        result = _chosen(result, seen, samples, effort)
        colours = result.samples[:, :, 0] - seen[:, None]
    if small != (height, width):
        flat = F.interpolate(colours.flatten(0, 1), size=(height, width), mode="bicubic")
        colours = flat.unflatten(0, colours.shape[:2])
        colours = colours - colours.mean(dim=2, keepdim=True)
    return lay_colours(photo[:, None], vivid * colours), result


def _check_preview(preview: bool, options: dict[str, Any]) -> None:
    """Refuses settings that a preview has itself."""
    given = [name for name in ("sampler", "effort", "steps") if options.get(name) is not None]
    if preview and given:
        raise BasisError(f"a preview has its own sampler and steps: leave out {given[0]}, or it")


def _chosen(result: Result, seen: Tensor, count: int, effort: bool) -> Result:
    """A result with the colourings that are shown alone, the most plausible first."""
    drawn = result.samples.shape[1]
    energies = result.energies
    if effort:  # those of its search, and not of its draws
        energies = energies.new_zeros(len(result.samples), drawn)
    if drawn > count:
        order = far_apart(result.samples[:, :, 0] - seen[:, None], energies, count)
    else:
        order = by_plausibility(energies)
    rows = torch.arange(len(order))[:, None]
    return dataclasses.replace(
        result,
        samples=result.samples[rows, order],
        energies=energies[rows, order],
        kept={sigma: state[rows, order] for sigma, state in result.kept.items()},
    )


def colouring(prior: Prior, steps: int | None = None) -> dict[str, Any]:
    """Settings of `separate` for colours: the ancestral sampler from noise in which no hue is left.

    `gibbs` draws pixels independently given the noisy image, which leaves colours pale: a hue is
    what pixels share. Tiles have to agree on a hue as well, and do so in twice as many steps (98
    instead of 49) and by redrawing more of the noise.
    """
    tiles = isinstance(prior, Tiled)
    steps = steps or (98 if tiles else 49)
    first, last = min(5.0, prior.sigma_max), max(0.01, prior.sigma_min)
    return {
        "sampler": "ancestral",
        "steps": steps,
        "sigma_max": first,
        "sigma_min": last,
        "churn": 3.0 if tiles else 1.0,
    }


def _photos(given: Any) -> Tensor:
    """Grey photos, (batch, 1, height, width); of pictures in colour the channel mean."""
    parts, _ = open_mixtures(given, 2)
    photos = []
    for part in parts:
        one = read_observation(part)
        if one.ndim == 2:
            one = one[None, None]
        if isinstance(part, MixtureFile | Image.Image) and one.ndim == 4:
            one = one.mean(dim=1, keepdim=True)
        if one.ndim != 4 or one.shape[1] != 1:
            raise BasisError(
                f"grey photos must be (batch, 1, height, width), not {tuple(one.shape)}; take the "
                "mean of the channels of colour ones"
            )
        photos.append(one)
    if len({one.shape[1:] for one in photos}) > 1:
        raise BasisError("photos of one batch must have one size; colour them one at a time")
    return torch.cat(photos)


def lay_colours(grey: Tensor, colours: Tensor) -> Tensor:
    """grey + colours, the colours made paler at each pixel just as far as [0, 1] asks for.

    Args:
        grey: (batch, samples, 1, height, width), or one that broadcasts to it.
        colours: (batch, samples, 3, height, width), of mean zero over the channels.
    """
    above = (1 - grey) / colours.amax(dim=2, keepdim=True).clamp_min(1e-6)
    below = grey / (-colours).amax(dim=2, keepdim=True).clamp_min(1e-6)
    return (grey + colours * torch.minimum(above, below).clamp(0, 1)).clamp(0, 1)


_DRAWN = 3  # colourings drawn for each one that is asked for, where they are to be diverse
_PLACES = 8  # along a side, at which the colours of two colourings are compared


def colourings_drawn(samples: int, diverse: bool) -> int:
    """How many colourings are drawn where `samples` are asked for; a single one is not diverse."""
    if diverse and samples < 2:
        raise BasisError(f"diverse colourings need samples of 2 or more, not {samples}")
    return samples * (_DRAWN if diverse else 1)


def by_plausibility(energies: Tensor) -> Tensor:
    """The places of colourings, the most plausible first: (batch, samples).

    Args:
        energies: (batch, samples), the least is the best; equal ones stay in their order.
    """
    return energies.argsort(dim=1, stable=True)


def far_apart(colours: Tensor, energies: Tensor, count: int) -> Tensor:
    """The places of colourings far apart in colour, the most plausible first: (batch, count).

    The most plausible one is always kept, and then, one at a time, the one that is farthest from
    those that are kept. (The least plausible are not left out first: the energy seems to prefer
    pale colours, so that what is left would be of one kind.)

    Args:
        colours: What was added to the grey, (batch, samples, 3, height, width).
        energies: (batch, samples), the least is the best.
        count: How many are kept.
    """
    order = by_plausibility(energies)
    rows = torch.arange(len(order))[:, None]
    # Hues of places and not of pixels: noise of the grain would make any two seem far apart.
    seen = F.adaptive_avg_pool2d(colours.flatten(0, 1), _PLACES)
    seen = seen.unflatten(0, colours.shape[:2])[rows, order].flatten(2)
    apart = torch.cdist(seen.double(), seen.double())
    kept = torch.zeros(len(order), 1, dtype=torch.long)
    nearest = apart[:, 0]
    for _ in range(count - 1):
        # A kept one is at no distance from itself; it must not be taken twice where all are alike.
        nearest = nearest.scatter(1, kept, -1.0)
        kept = torch.cat([kept, nearest.argmax(dim=1, keepdim=True)], dim=1)
        nearest = torch.minimum(nearest, apart[torch.arange(len(order)), kept[:, -1]])
    return order.gather(1, kept.sort(dim=1).values)
