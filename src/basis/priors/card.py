"""The card of a stored prior: what its weights are, where they come from and how good they are."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from basis.errors import BasisError, one_line

_REQUIRED = ("name", "architecture", "shape", "sigma_min", "sigma_max", "sha256")
_ERRORS = "held_out_error_over_sigma2"
_LARGEST = 1e30
_LARGEST_SIGNAL = 2**31


@dataclass(frozen=True)
class Card:
    """Everything that the card.json of a prior holds.

    Attributes:
        name: What records and panels call it.
        architecture: The kind of its network and the sizes to build it again.
        shape: (channels, *size) of one signal.
        sigma_min, sigma_max: The range of noise levels that it answers for.
        sha256: Checksum of its weights file.
        title: One line that says what it is a prior of.
        low, high: Bounds of the values, or None where there is none.
        center: A typical value, or None.
        spread: Standard deviation of a value, or None.
        errors: Held-out squared error / sigma^2 by sigma.
        classes: Names of the classes that its network may be told; empty where it is told none.
        data: What it was trained on.
        training: How it was trained, and what was measured on held-out data.
        quality: Figures, each with the command that measured it.
        parameters: Number of weights.
        licence: Under which terms it may be used.
        note: Anything else that its reader should know.
        energies: Typical energies of held-out images and of separated sources, as `Energies` reads
            them.
        spectrum: How values move together given a noisy signal, as `Spectrum` reads it.
        more: Entries that this version does not know, kept as they are.
    """

    name: str
    architecture: Mapping[str, Any]
    shape: tuple[int, ...]
    sigma_min: float
    sigma_max: float
    sha256: str
    title: str = ""
    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None
    errors: Mapping[float, float] = field(default_factory=dict)
    classes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    quality: Sequence[Mapping[str, Any]] = ()
    parameters: int | None = None
    licence: str = ""
    note: str = ""
    energies: Mapping[str, Any] | None = None
    spectrum: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"Card({self.name!r}, {shape}, {self.architecture.get('kind', 'unknown')} network)"

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], where: str = "a card") -> Card:
        """The card with these entries, checked; cards of earlier versions are completed.

        Args:
            entries: As JSON holds them.
            where: What an error message calls the card, for example its path.
        """
        if not isinstance(entries, Mapping):
            raise BasisError(f"{where} must be an object of entries, not {entries!r:.60}")
        missing = [key for key in _REQUIRED if key not in entries]
        if missing:
            raise BasisError(f"{where} lacks {', '.join(missing)}")
        entries = {**_defaults(entries), **entries}
        known = {f.name for f in fields(cls)} - {"more"}
        values = {key: _READERS[key](entries[key], key, where) for key in known & entries.keys()}
        card = cls(**values, more={k: v for k, v in entries.items() if k not in known})
        card._check_ranges(where)
        return card

    def _check_ranges(self, where: str) -> None:
        """Refuses numbers that contradict each other."""
        if not 0 <= self.sigma_min <= self.sigma_max:
            raise BasisError(
                f"{where}: noise levels must be 0 <= sigma_min <= sigma_max, not "
                f"{self.sigma_min:g}, {self.sigma_max:g}"
            )
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise BasisError(
                f"{where}: low must be less than high, not {self.low:g} and {self.high:g}"
            )
        if self.spread is not None and not self.spread > 0:
            raise BasisError(f"{where}: spread must be more than 0, not {self.spread:g}")

    def to_dict(self) -> dict[str, Any]:
        """The entries as JSON holds them, from which `from_dict` makes the same card."""
        entries = {f.name: getattr(self, f.name) for f in fields(self)}
        more = entries.pop("more")
        entries["shape"] = list(self.shape)
        entries["errors"] = {f"{sigma:g}": error for sigma, error in self.errors.items()}
        entries["classes"] = list(self.classes)
        entries["quality"] = [dict(row) for row in self.quality]
        # A bound that is null says that there is none; anything else that is empty is left out.
        kept = {k: v for k, v in entries.items() if k in ("low", "high") or _told(v)}
        return {k: kept[k] for k in _ORDER if k in kept} | dict(more)


def _defaults(entries: Mapping[str, Any]) -> dict[str, Any]:
    """What cards did not say before they had ranges: all priors were of pictures in [0, 1]."""
    if "low" in entries or "high" in entries:
        return {}
    training, architecture = entries.get("training"), entries["architecture"]
    errors = training.get(_ERRORS) if isinstance(training, Mapping) else None
    found: dict[str, Any] = {"low": 0.0, "high": 1.0, "errors": errors or {}}
    if isinstance(architecture, Mapping):
        network = architecture.get("network")
        std = architecture.get("std", network.get("std") if isinstance(network, Mapping) else None)
        found["spread"] = std
    return found


def _told(value: Any) -> bool:
    return value is not None and not (isinstance(value, str | Mapping | Sequence) and not value)


def _number(value: Any, key: str, where: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -_LARGEST < value < _LARGEST  # NaN is refused too
    ):
        raise BasisError(f"{where}: {key} must be a number, not {value!r:.60}")
    return value


def _optional(value: Any, key: str, where: str) -> float | None:
    return None if value is None else _number(value, key, where)


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise BasisError(f"{where}: {key} must be text, not {value!r:.60}")
    return value


def _name(value: Any, key: str, where: str) -> str:
    text = _text(value, key, where)
    if len(text) > 200 or not text.isprintable():
        raise BasisError(
            f"{where}: {key} must be one line of 200 printable characters at most, "
            f"not {value!r:.60}"
        )
    return text


def _mapping(value: Any, key: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BasisError(f"{where}: {key} must be an object of entries, not {value!r:.60}")
    return value


def _optional_mapping(value: Any, key: str, where: str) -> Mapping[str, Any] | None:
    return None if value is None else _mapping(value, key, where)


def _shape(value: Any, key: str, where: str) -> tuple[int, ...]:
    whole = isinstance(value, list | tuple) and len(value) > 0
    if not whole or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in value):
        raise BasisError(f"{where}: shape must be [channels, sides...], not {value!r:.60}")
    if len(value) > 8 or math.prod(value) > _LARGEST_SIGNAL:
        raise BasisError(
            f"{where}: shape must be of at most 8 axes and 2^31 values, not {value!r:.60}"
        )
    return tuple(value)


def _curve(value: Any, key: str, where: str) -> dict[float, float]:
    try:
        curve = {float(s): float(e) for s, e in _mapping(value, key, where).items()}
    except (TypeError, ValueError, OverflowError) as error:
        raise BasisError(
            f"{where}: {key} must map noise levels to numbers ({one_line(error, 80)})"
        ) from error
    if any(not (0 < s < _LARGEST and 0 < e < _LARGEST) for s, e in curve.items()):
        raise BasisError(f"{where}: {key} must map positive noise levels to positive numbers")
    return curve


def _rows(value: Any, key: str, where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple):
        raise BasisError(f"{where}: {key} must be a list, not {value!r:.60}")
    return tuple(_mapping(row, key, where) for row in value)


def _names(value: Any, key: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > 65_536:
        raise BasisError(f"{where}: {key} must be a list of names, not {value!r:.60}")
    names = tuple(_name(name, key, where) for name in value)
    if len(set(names)) < len(names):
        raise BasisError(f"{where}: {key} must differ from each other, not {value!r:.60}")
    return names


def _count(value: Any, key: str, where: str) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    if value is not None and not whole:
        raise BasisError(f"{where}: {key} must be a whole number, not {value!r:.60}")
    return value


# How each entry is read from JSON.
_READERS: dict[str, Any] = {
    "name": _name,
    "title": _text,
    "architecture": _mapping,
    "shape": _shape,
    "sigma_min": _number,
    "sigma_max": _number,
    "low": _optional,
    "high": _optional,
    "center": _optional,
    "spread": _optional,
    "errors": _curve,
    "classes": _names,
    "data": _mapping,
    "training": _mapping,
    "parameters": _count,
    "sha256": _text,
    "licence": _text,
    "note": _text,
    "quality": _rows,
    "energies": _optional_mapping,
    "spectrum": _optional_mapping,
}
_ORDER = tuple(_READERS)


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
