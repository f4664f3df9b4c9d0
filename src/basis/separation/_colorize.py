"""Colourisation of photos of any size, with a prior of small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from basis._errors import BasisError
from basis.mixings import grey as grey_mixing
from basis.priors import Prior, Tiled
from basis.separation._result import Progress, Result
from basis.separation._separate import separate


def colorize(
    grey: Tensor | np.ndarray,
    prior: Prior,
    *,
    side: int = 64,
    samples: int = 1,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> tuple[Tensor, Result]:
    """Colours for grey photos whose channel mean they are.

    The colours are drawn at no more than `side` pixels along the longer side, through overlapping
    tiles where that is more than the
    prior was trained on, and laid over the photo at its own size: the eye takes its detail from the
    grey.

    Args:
        grey: (batch, 1, height, width), in [0, 1], a tensor or a numpy array: the channel mean, not
            a weighted luminance.
        prior: Of colour images.
        side: Longest side that colours are drawn at; never below the prior's own.
        samples: Different colourings of each photo.
        options: Of `separate`; a sampler or an effort, in place of what `colouring` says.

    Returns:
        (batch, samples, 3, height, width) in [0, 1], whose channel mean is `grey` wherever the
        range of colours allows it, and the result of the separation at the smaller size.
    """
    if not isinstance(prior, Prior):
        raise BasisError(f"prior must be a prior, as load_prior gives one, not {prior!r}")
    if not isinstance(side, int) or side < 1:
        raise BasisError(f"side must be a whole number of pixels, 1 or more, not {side!r}")
    grey = torch.from_numpy(grey) if isinstance(grey, np.ndarray) else grey
    channels, tile_height, tile_width = prior.shape
    if channels != 3:
        raise BasisError(
            f"colourisation needs a prior of colour images; {prior.name!r} is of {channels} channel"
        )
    if grey.ndim != 4 or grey.shape[1] != 1:
        raise BasisError(f"grey photos must be (batch, 1, height, width), not {tuple(grey.shape)}")
    height, width = grey.shape[2:]
    share = min(1.0, max(side, tile_height, tile_width) / max(height, width))
    small = (max(tile_height, round(height * share)), max(tile_width, round(width * share)))
    seen = grey
    if small != (height, width):
        seen = F.interpolate(grey, size=small, mode="bicubic", antialias=True).clamp(0, 1)
    tiled = prior if small == (tile_height, tile_width) else Tiled(prior, *small)
    if not {"sampler", "effort"} & set(options):
        options = colouring(tiled) | options
    result = separate(
        seen, tiled, mixing=grey_mixing(3), samples=samples, seed=seed, progress=progress, **options
    )
    colours = result.samples[:, :, 0] - seen[:, None]
    if small != (height, width):
        flat = F.interpolate(colours.flatten(0, 1), size=(height, width), mode="bicubic")
        colours = flat.unflatten(0, colours.shape[:2])
        colours = colours - colours.mean(dim=2, keepdim=True)
    return _within(grey[:, None], colours), result


def colouring(prior: Prior, steps: int = 98) -> dict[str, Any]:
    """Settings of `separate` for colours: the ancestral sampler from noise in which no hue is left.

    `gibbs` draws pixels independently given the noisy image, which leaves colours pale: a hue is
    what pixels share. Tiles have to agree on a hue as well, and do so by redrawing more of the
    noise.
    """
    first, last = min(5.0, prior.sigma_max), max(0.01, prior.sigma_min)
    memory = round((last / first) ** ((3 if isinstance(prior, Tiled) else 1) / steps), 4)
    return {
        "sampler": "posterior-sde", "steps": steps, "sigma_max": first, "sigma_min": last, "memory": memory,
    }  # fmt: skip


def _within(grey: Tensor, colours: Tensor) -> Tensor:
    """grey + colours, the colours made paler at each pixel just as far as [0, 1] asks for."""
    above = (1 - grey) / colours.amax(dim=2, keepdim=True).clamp_min(1e-6)
    below = grey / (-colours).amax(dim=2, keepdim=True).clamp_min(1e-6)
    return (grey + colours * torch.minimum(above, below).clamp(0, 1)).clamp(0, 1)
