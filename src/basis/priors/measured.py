"""How the values of a prior's signals move together, measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.priors.prior import Prior
from basis.priors.spectrum import SMALLEST, Spectrum
from basis.tensors import cosine_frequencies, dct

_LEVELS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)  # in units of std
_BINS = 14  # frequencies that are kept, evenly spaced on a logarithmic scale
_LEAST = 8  # signals that a spectrum is told from at least


def measure_spectrum(
    prior: Prior,
    images: Tensor,
    *,
    seed: int = 0,
    chunk: int = 128,
    about: Mapping[str, Any] | None = None,
) -> Spectrum:
    """Measures how the values of a prior's signals move together; keeps it as `prior.spectrum`.

    From then on samplers that draw clean signals draw values together. It takes an evaluation for
    every signal and noise level.

    Args:
        prior: Any prior.
        images: Signals of its kind, (n, *prior.shape), 8 or more.
        seed: Of the noise.
        chunk: Signals at once.
        about: What the card shall say beside the counts.
    """
    if len(images) < _LEAST or tuple(images.shape[1:]) != prior.shape:
        raise BasisError(
            f"a spectrum is measured on {_LEAST} signals of shape {prior.shape} or more, not on "
            f"{tuple(images.shape)}"
        )
    generator = torch.Generator().manual_seed(seed)
    levels = [level for level in _LEVELS if prior.sigma_min <= level * prior.std <= prior.sigma_max]
    if not levels:
        raise BasisError(f"prior {prior.name!r} knows none of the noise levels of a spectrum")
    lengths = cosine_frequencies(prior.shape[1:])
    edges = torch.logspace(
        math.log10(lengths.min().item()), math.log10(lengths.max().item() * 1.0001), _BINS + 1
    ).double()
    place = (torch.searchsorted(edges, lengths.flatten(), right=True) - 1).clamp(0, _BINS - 1)
    kept = [number for number in range(_BINS) if bool((place == number).any())]
    frequencies = [lengths.flatten()[place == b].log().mean().exp().item() for b in kept]
    values = []
    for level in levels:
        sigma = level * prior.std
        total = torch.zeros(prior.shape, dtype=torch.float64)
        with torch.inference_mode():
            for x in images.split(chunk):
                noise = torch.randn(x.shape, generator=generator).to(x)
                mean, variance = prior.moments(x + sigma * noise, sigma)
                error = (x - mean) / variance.clamp_min(1e-30).sqrt()
                total += dct(error, len(prior.shape)).square().sum(dim=0).double().cpu()
        flat = (total / len(images)).clamp_min(SMALLEST).flatten(1)
        values.append(tuple(tuple(row[place == b].mean().item() for b in kept) for row in flat))
    told = {"images": len(images), "seed": seed, **(about or {})}
    prior.spectrum = Spectrum(tuple(levels), tuple(frequencies), tuple(values), told)
    return prior.spectrum
