"""How the values of a clean signal move together, given a noisy view of it.

A prior tells the mean and the variance of every clean value. The values are not independent: what
much noise leaves open of a photo is how bright and of what hue its areas are, and hardly its
finest detail. Their covariance is taken to be

    S F^T L F S,

with S the standard deviations that the prior tells, F the orthonormal cosine transform over
channels and sides, and L the variance of each frequency where that of independent values is one. L
is measured once, by noise level, and depends on the frequency's length alone, so that it holds for
signals of any size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.tensors import cosine_frequencies

SMALLEST = 1e-6
"""The least variance of a frequency, where that of independent values is one."""


@dataclass(frozen=True)
class Spectrum:
    """How the values of a prior's signals move together, by noise level and frequency.

    Attributes:
        levels: Noise levels in units of the prior's std, ascending.
        frequencies: In cycles per place, ascending.
        values: Variance of each frequency where that of independent values is one: a row for every
            level, of one for every component of the channels (their cosines: the first is their
            mean), of one number for every frequency.
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
        """Channels of the signals that it is of."""
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
        """The variance of each frequency of signals of a shape, (channels, *size), mean one.

        Between its levels and frequencies it is straight on logarithmic axes, and level beyond.

        Args:
            level: The noise level, in units of the prior's std.
            shape: (channels, *size), with the channels that the spectrum is of.
        """
        return _variances(self, float(f"{level:.6g}"), shape)


@lru_cache(maxsize=512)
def _variances(spectrum: Spectrum, noise: float, shape: tuple[int, ...]) -> Tensor:
    rows = torch.tensor(spectrum.values, dtype=torch.float64).log()
    level = _between(rows, spectrum.levels, torch.tensor([noise], dtype=torch.float64))[0]
    lengths = cosine_frequencies(shape[1:])
    along = _between(level.T, spectrum.frequencies, lengths.flatten())
    values = along.T.exp().reshape(shape)
    return (values / values.mean()).clamp_min(SMALLEST)


def _between(rows: Tensor, points: Sequence[float], wanted: Tensor) -> Tensor:
    """Rows (points, ...) at wanted points, (wanted, ...), straight over the points' logarithms."""
    if len(points) == 1:
        return rows.expand(len(wanted), *rows.shape[1:])
    known = torch.tensor(points, dtype=torch.float64).log()
    at = wanted.double().log()
    above = torch.searchsorted(known, at).clamp(1, len(points) - 1)
    share = ((at - known[above - 1]) / (known[above] - known[above - 1])).clamp(0, 1)
    share = share.reshape(-1, *[1] * (rows.ndim - 1))
    return (1 - share) * rows[above - 1] + share * rows[above]
