"""Correlations of the values of a clean signal, given a noisy one.

A prior provides the mean and the variance of every clean value. The values are not independent:
what large noise leaves undecided in a photo is the brightness and hue of its areas rather than its
finest detail. Their covariance is modeled as

    S F^T L F S,

with S the standard deviations of the prior, F the orthonormal cosine transform over channels and
sides, and L the variance of each frequency relative to that of independent values. L is measured
once, by noise level, and depends on the length of the frequency only, so that it applies to signals
of any size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.progress import with_bar
from basis.tensors import cosine_frequencies, dct

if TYPE_CHECKING:
    from basis.priors.prior import Prior

SMALLEST = 1e-6
"""The smallest variance of a frequency, relative to that of independent values."""
_LEVELS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)  # in units of std
_BINS = 14  # frequencies, evenly spaced on a logarithmic scale
_LEAST = 8  # signals that are needed


@dataclass(frozen=True)
class Spectrum:
    """Correlations of the values of a prior's signals, by noise level and frequency.

    Attributes:
        levels: Noise levels in units of the prior's std, ascending.
        frequencies: In cycles per sample or pixel, ascending.
        values: Variance of each frequency relative to that of independent values: for every level,
            for every cosine component of the channels (the first is their mean), one number per
            frequency.
        about: What was measured.
    """

    levels: tuple[float, ...]
    frequencies: tuple[float, ...]
    values: tuple[tuple[tuple[float, ...], ...], ...]
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("levels", "frequencies"):
            row = getattr(self, name)
            rising = all(a < b for a, b in itertools.pairwise(row))
            if not row or not rising or not 0 < row[0] <= row[-1] < math.inf:
                raise BasisError(f"the {name} of a spectrum must be rising numbers above 0")
        channels = {len(level) for level in self.values}
        lengths = {len(row) for level in self.values for row in level}
        if (
            len(self.values) != len(self.levels)
            or len(channels) != 1
            or lengths != {len(self.frequencies)}
        ):
            raise BasisError(
                "the values of a spectrum must be a number for every level, channel and frequency"
            )
        flat = [value for level in self.values for row in level for value in row]
        if any(not 0 < value < math.inf for value in flat):
            raise BasisError("the values of a spectrum must be finite and above 0")

    @property
    def channels(self) -> int:
        """Channels of its signals."""
        return len(self.values[0])

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], where: str = "a card") -> Spectrum:
        """The spectrum that a card holds, checked."""
        try:
            return cls(
                levels=tuple(float(level) for level in entries["levels"]),
                frequencies=tuple(float(f) for f in entries["frequencies"]),
                values=tuple(
                    tuple(tuple(float(v) for v in row) for row in level)
                    for level in entries["values"]
                ),
                about=dict(entries.get("about", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BasisError(f"{where}: its spectrum cannot be read ({error})") from error
        except BasisError as error:
            raise BasisError(f"{where}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The entries as a card holds them."""
        return {
            "levels": list(self.levels),
            "frequencies": [float(f"{f:.5g}") for f in self.frequencies],
            "values": [
                [[float(f"{v:.4g}") for v in row] for row in level] for level in self.values
            ],
            "about": dict(self.about),
        }

    def at(self, level: float, shape: tuple[int, ...]) -> Tensor:
        """The variance of each frequency of signals of a shape, (channels, *size), with mean one.

        It is linear between levels and frequencies on logarithmic axes, and constant beyond.

        Args:
            level: The noise level, in units of the prior's std.
            shape: (channels, *size), with the channels of the spectrum.
        """
        return _variances(self, float(f"{level:.6g}"), shape)


def measure_spectrum(
    prior: Prior,
    images: Tensor,
    *,
    seed: int = 0,
    chunk: int = 128,
    about: Mapping[str, Any] | None = None,
) -> Spectrum:
    """Measures how the values of a prior's signals are correlated; kept as `prior.spectrum`.

    From then on samplers that draw clean signals draw correlated values. It takes one evaluation
    per signal and noise level.

    Args:
        prior: Any prior.
        images: Signals of its kind, (n, *prior.shape), 8 or more.
        seed: Of the noise.
        chunk: Signals at once.
        about: Further entries for the card.
    """
    if len(images) < _LEAST or tuple(images.shape[1:]) != prior.shape:
        raise BasisError(
            f"a spectrum is measured on {_LEAST} or more signals of shape {prior.shape}, not on "
            f"{tuple(images.shape)}"
        )
    generator = torch.Generator().manual_seed(seed)
    levels = [level for level in _LEVELS if prior.sigma_min <= level * prior.std <= prior.sigma_max]
    if not levels:
        raise BasisError(f"prior {prior.name!r} has none of the noise levels of a spectrum")
    lengths = cosine_frequencies(prior.shape[1:])
    edges = torch.logspace(
        math.log10(lengths.min().item()), math.log10(lengths.max().item() * 1.0001), _BINS + 1
    ).double()
    bins = (torch.searchsorted(edges, lengths.flatten(), right=True) - 1).clamp(0, _BINS - 1)
    kept = [number for number in range(_BINS) if bool((bins == number).any())]
    frequencies = [lengths.flatten()[bins == b].log().mean().exp().item() for b in kept]
    values = []
    for level in with_bar(levels, "measuring"):
        sigma = level * prior.std
        total = torch.zeros(prior.shape, dtype=torch.float64)
        with torch.inference_mode():
            for x in images.split(chunk):
                noise = torch.randn(x.shape, generator=generator).to(x)
                mean, variance = prior.moments(x + sigma * noise, sigma)
                error = (x - mean) / variance.clamp_min(1e-30).sqrt()
                total += dct(error, len(prior.shape)).square().sum(dim=0).double().cpu()
        flat = (total / len(images)).clamp_min(SMALLEST).flatten(1)
        values.append(tuple(tuple(row[bins == b].mean().item() for b in kept) for row in flat))
    measured = {"images": len(images), "seed": seed, **(about or {})}
    prior.spectrum = Spectrum(tuple(levels), tuple(frequencies), tuple(values), measured)
    return prior.spectrum


@lru_cache(maxsize=512)
def _variances(spectrum: Spectrum, noise: float, shape: tuple[int, ...]) -> Tensor:
    rows = torch.tensor(spectrum.values, dtype=torch.float64).log()
    level = _between(rows, spectrum.levels, torch.tensor([noise], dtype=torch.float64))[0]
    lengths = cosine_frequencies(shape[1:])
    along = _between(level.T, spectrum.frequencies, lengths.flatten())
    values = along.T.exp().reshape(shape)
    return (values / values.mean()).clamp_min(SMALLEST)


def _between(rows: Tensor, points: Sequence[float], wanted: Tensor) -> Tensor:
    """Rows (points, ...) at wanted points, (wanted, ...), linear in log(points)."""
    if len(points) == 1:
        return rows.expand(len(wanted), *rows.shape[1:])
    known = torch.tensor(points, dtype=torch.float64).log()
    at = wanted.double().log()
    above = torch.searchsorted(known, at).clamp(1, len(points) - 1)
    share = ((at - known[above - 1]) / (known[above] - known[above - 1])).clamp(0, 1)
    share = share.reshape(-1, *[1] * (rows.ndim - 1))
    return (1 - share) * rows[above - 1] + share * rows[above]
