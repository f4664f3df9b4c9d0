"""Typical energies of a prior's signals: what a result is compared with to say how plausible it is.

The energy of a signal is its denoising error over a few noise levels,

    integral of E |x - denoise(x + sigma n)|^2 / sigma^2  d log(sigma),

a bound on -log p in nats up to a constant. Signals that the prior knows have energies of a narrow
range, and others, inverted or noisy or of another kind, have larger ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from basis._errors import BasisError

LIKELY = 0.03
"""Sources less plausible than this are called implausible."""
_POINTS = 101  # quantiles that are kept of a distribution
_FALL = 3.0  # how fast shares fall beyond the ends, per half of the width


@dataclass(frozen=True)
class Energies:
    """The distribution of the energies of a prior's own signals.

    Attributes:
        levels: Noise levels of the energy in spreads of the prior, ascending.
        values: Number of values of the signals that were measured, channels times size.
        images: Quantiles of the energies of held-out images (or of the prior's own samples), evenly
            spaced from the least to the largest.
        separated: The same of sources that were separated from mixtures of such images.
        about: What was measured: origin, counts, command.
    """

    levels: tuple[float, ...]
    values: int
    images: tuple[float, ...]
    separated: tuple[float, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.levels or any(not 0 < level < math.inf for level in self.levels):
            raise BasisError("energies need noise levels, numbers above 0")
        for name in ("images", "separated"):
            curve = getattr(self, name)
            finite = all(math.isfinite(e) for e in curve)
            if not finite or list(curve) != sorted(curve) or len(curve) == 1:
                raise BasisError(f"energies of {name} must be quantiles in ascending order")
        if not self.images or self.values < 1:
            raise BasisError("energies need quantiles of images, and how many values these have")

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], where: str = "a card") -> Energies:
        """The energies that a card holds, checked."""
        try:
            return cls(
                levels=tuple(float(level) for level in entries["levels"]),
                values=int(entries["values"]),
                images=tuple(float(e) for e in entries["images"]),
                separated=tuple(float(e) for e in entries.get("separated", ())),
                about=dict(entries.get("about", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BasisError(f"{where}: its energies cannot be read ({error})") from error
        except BasisError as error:
            raise BasisError(f"{where}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The entries as a card holds them."""
        return {
            "levels": [float(f"{level:.6g}") for level in self.levels],
            "values": self.values,
            "images": [float(f"{e:.5g}") for e in self.images],
            "separated": [float(f"{e:.5g}") for e in self.separated],
            "about": dict(self.about),
        }

    def share(self, energy: float) -> float:
        """How typical an energy is, 0 to 1: how often one of the prior's own is as far out.

        An energy far above the others is that of a signal which the prior does not know, one far
        below that of a signal with nothing in it. Separated sources are what it is asked for, so
        that these count where they were measured; where only images were, low energies do not
        count, for separated sources are smoother. Beyond the ends the share falls off like an
        exponential.
        """
        curve = self.separated or self.images
        steps = len(curve) - 1
        least, middle, most = curve[0], curve[steps // 2], curve[-1]
        end = 1 / (steps + 1)
        if energy <= least:
            if not self.separated:
                return 1.0
            return end * math.exp(_FALL * (energy - least) / max(middle - least, 1e-9))
        if energy >= most:
            return end * math.exp(_FALL * (most - energy) / max(most - middle, 1e-9))
        low, high = bisect_left(curve, energy), bisect_right(curve, energy)
        if low < high:  # on one of the quantiles, or on several that are equal
            rank = (low + high - 1) / 2
        else:
            rank = low - 1 + (energy - curve[low - 1]) / (curve[low] - curve[low - 1])
        if not self.separated:
            return max(end, 1 - rank / steps)
        return max(end, 2 * min(rank, steps - rank) / steps)


def quantiles(energies: Sequence[float]) -> tuple[float, ...]:
    """Evenly spaced quantiles of energies, least and largest among them."""
    ordered = sorted(energies)
    if len(ordered) < 2:
        raise BasisError(f"a distribution needs two energies or more, not {len(ordered)}")
    points = []
    for i in range(min(_POINTS, len(ordered))):
        at = i / (min(_POINTS, len(ordered)) - 1) * (len(ordered) - 1)
        low = min(int(at), len(ordered) - 2)
        points.append(ordered[low] + (at - low) * (ordered[low + 1] - ordered[low]))
    return tuple(points)
