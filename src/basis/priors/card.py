"""The card of a stored prior: what its weights are, where they come from and how good they are."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from basis.errors import BasisError

ValueRange = tuple[float, float]
"""Smallest and largest value of a signal; one of them may be infinite."""

_REQUIRED = ("name", "architecture", "shape", "sigma_min", "sigma_max", "sha256")
_PREVIOUS = {"spread": "std", "licence": "license"}
_LARGEST = 1e30
_LARGEST_SIGNAL = 2**31


@dataclass(frozen=True)
class Card:
    """The contents of the card.json of a prior.

    Attributes:
        name: Its name in records and figures.
        architecture: The kind of its network and the configuration to build it from.
        shape: (channels, *size) of one signal.
        sigma_min, sigma_max: The range of noise levels it was trained on.
        sha256: Checksum of its weights file.
        title: One line about what it models.
        value_range: Smallest and largest value, or None for unbounded signals.
        center: A typical value, or None.
        std: Standard deviation of the values, or None.
        errors: Held-out squared error / sigma^2 by sigma.
        classes: Names of the classes that its network can be conditioned on.
        data: What it was trained on.
        training: How it was trained, and figures on held-out data.
        quality: Measured figures, each with the command that measured it.
        parameters: Number of weights.
        license: The terms under which it may be used.
        note: Anything else.
        energies: Typical energies of held-out signals and of separated sources, as `Energies`
            reads them.
        spectrum: Correlations of the values given a noisy signal, as `Spectrum` reads them.
        more: Entries that this version does not know, kept as they are.
    """

    name: str
    architecture: Mapping[str, Any]
    shape: tuple[int, ...]
    sigma_min: float
    sigma_max: float
    sha256: str
    title: str = ""
    value_range: ValueRange | None = (0.0, 1.0)
    center: float | None = None
    std: float | None = None
    errors: Mapping[float, float] = field(default_factory=dict)
    classes: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    quality: Sequence[Mapping[str, Any]] = ()
    parameters: int | None = None
    license: str = ""
    note: str = ""
    energies: Mapping[str, Any] | None = None
    spectrum: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"Card({self.name!r}, {shape}, {self.architecture.get('kind', 'unknown')} network)"

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], where: str = "a card") -> Card:
        """The card with these entries, checked.

        Args:
            entries: As JSON holds them.
            where: What an error message calls the card, for example its path.
        """
        if not isinstance(entries, Mapping):
            raise BasisError(f"{where} must be an object of entries, not {entries!r:.60}")
        missing = [key for key in _REQUIRED if key not in entries]
        if missing:
            raise BasisError(f"{where} lacks {', '.join(missing)}")
        entries = {_PREVIOUS.get(key, key): value for key, value in entries.items()}
        if "low" in entries or "high" in entries:  # also of previous versions
            entries["value_range"] = [entries.pop("low", None), entries.pop("high", None)]
        for key, (accepted, what) in _CHECKS.items():
            value = entries.get(key)
            empty = key not in entries or (value is None and key in _OPTIONAL)
            if not empty and not accepted(value):
                raise BasisError(f"{where}: {key} must be {what}, not {value!r:.60}")
        values = {key: entries[key] for key in _CHECKS if key in entries}
        if "value_range" in values:
            values["value_range"] = check_value_range(
                values["value_range"], f"{where}: value_range"
            )
        values["shape"] = tuple(values["shape"])
        values["classes"] = tuple(values.get("classes", ()))
        values["quality"] = tuple(values.get("quality", ()))
        values["errors"] = {float(s): float(e) for s, e in values.get("errors", {}).items()}
        card = cls(**values, more={k: v for k, v in entries.items() if k not in _CHECKS})
        if not 0 <= card.sigma_min <= card.sigma_max:
            raise BasisError(
                f"{where}: noise levels must be 0 <= sigma_min <= sigma_max, not "
                f"{card.sigma_min:g}, {card.sigma_max:g}"
            )
        if card.std is not None and not card.std > 0:
            raise BasisError(f"{where}: std must be more than 0, not {card.std:g}")
        return card

    def to_dict(self) -> dict[str, Any]:
        """The entries as JSON holds them, from which `from_dict` makes the same card."""
        entries = {key: getattr(self, key) for key in _CHECKS}
        entries["shape"] = list(self.shape)
        entries["errors"] = {f"{sigma:g}": error for sigma, error in self.errors.items()}
        entries["classes"] = list(self.classes)
        entries["quality"] = [dict(row) for row in self.quality]
        if self.value_range is not None:
            entries["value_range"] = [v if math.isfinite(v) else None for v in self.value_range]
        empty: tuple[Any, ...] = (None, "", {}, [])
        kept = {k: v for k, v in entries.items() if k == "value_range" or v not in empty}
        return kept | dict(self.more)


def check_value_range(value: Any, what: str) -> ValueRange | None:
    """A range of values as a pair of floats; None where both ends are open.

    Args:
        value: None, or a pair (low, high) in which None leaves an end open.
        what: What an error message calls it.
    """
    if value is None:
        return None
    ends = [math.nan, math.nan]
    if isinstance(value, list | tuple) and len(value) == 2:
        for side, end in enumerate(value):
            open_end = (-math.inf, math.inf)[side]
            number = isinstance(end, int | float) and not isinstance(end, bool)
            ends[side] = open_end if end is None else float(end) if number else math.nan
    if not ends[0] < ends[1]:
        raise BasisError(f"{what} must be a pair (low, high) with low < high, not {value!r:.60}")
    return None if math.isinf(ends[0]) and math.isinf(ends[1]) else (ends[0], ends[1])


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -_LARGEST < value < _LARGEST  # not NaN


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200 and value.isprintable()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_shape(value: Any) -> bool:
    sides = isinstance(value, list | tuple) and 1 <= len(value) <= 8
    return sides and all(_is_count(v, 1) for v in value) and math.prod(value) <= _LARGEST_SIGNAL


def _is_curve(value: Any) -> bool:
    try:
        curve = {float(s): float(e) for s, e in value.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        return False
    return all(0 < s < _LARGEST and 0 < e < _LARGEST for s, e in curve.items())


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_mapping(row) for row in value)


def _are_names(value: Any) -> bool:
    names = isinstance(value, list | tuple) and len(value) <= 65_536 and all(map(_is_name, value))
    return names and len(set(value)) == len(value)


_OBJECT = (_is_mapping, "an object of entries")
_NUMBER = (_is_number, "a number")
_TEXT = (_is_text, "text")
# What is accepted for each entry, in the order in which a card holds them.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_name, "one line of at most 200 printable characters"),
    "title": _TEXT,
    "architecture": _OBJECT,
    "shape": (_is_shape, "[channels, sides...] with at most 8 axes and 2^31 values"),
    "sigma_min": _NUMBER,
    "sigma_max": _NUMBER,
    "value_range": (lambda value: True, ""),  # see check_value_range
    "center": _NUMBER,
    "std": _NUMBER,
    "errors": (_is_curve, "an object of positive noise levels and positive numbers"),
    "classes": (_are_names, "a list of different names"),
    "data": _OBJECT,
    "training": _OBJECT,
    "parameters": (_is_count, "a whole number"),
    "sha256": _TEXT,
    "license": _TEXT,
    "note": _TEXT,
    "quality": (_is_list, "a list of objects"),
    "energies": _OBJECT,
    "spectrum": _OBJECT,
}
_OPTIONAL = ("center", "std", "parameters", "energies", "spectrum")


LIKELY = 0.03
"""Sources with a plausibility below this get a warning."""
_POINTS = 101  # quantiles kept of a distribution
_FALL = 3.0  # how fast shares fall beyond the ends, per half of the width


@dataclass(frozen=True)
class Energies:
    """The distribution of the energies of a prior's own signals.

    Attributes:
        levels: Noise levels of the energy in units of the prior's std, ascending.
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
        """How typical an energy is, 0 to 1: the share of the prior's own that are as extreme.

        A signal unknown to the prior has a far larger energy than the measured ones, an empty
        signal a far smaller one. The energies of separated sources are used where they were
        measured. Otherwise those of images are, and low energies count as typical, because
        separated sources are smoother. Beyond the ends the share falls off exponentially.
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
