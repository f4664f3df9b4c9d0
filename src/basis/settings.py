"""Descriptions of settings, and the checks of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from basis.errors import BasisError

LARGEST = 2**53
"""Whole numbers beyond this are no count of anything, and no float holds them."""

_LONGEST = 64


def check_fields(kind: type[Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values for the fields of a dataclass as JSON holds them, checked; lists become tuples.

    Args:
        kind: The dataclass.
        values: Some of its fields.
        where: What an error calls the place of the values.
    """
    if not isinstance(values, Mapping):
        raise BasisError(f"{where} must be an object of entries, not {values!r:.60}")
    known = {f.name: f for f in fields(kind)}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise BasisError(f"{where} has no {unknown[0]!r:.60}; known are {', '.join(known)}")
    missing = [
        name
        for name, f in known.items()
        if name not in values and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise BasisError(f"{where} lacks {', '.join(missing)}")
    hints = get_type_hints(kind)
    found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    for name, value in found.items():
        _check(value, hints[name], known[name].metadata, f"{where}: {name}")
        if hints[name] is float:  # a whole number may be too large for a tensor
            found[name] = float(value)
    return found


def check_ranges(settings: Any, where: str = "") -> None:
    """Checks types and ranges of all fields of a dataclass that was made already."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        label = f"{where}: {field.name}" if where else field.name
        _check(getattr(settings, field.name), hints[field.name], field.metadata, label)


def _check(value: Any, hint: Any, metadata: Mapping[str, Any], label: str) -> None:
    """Raises where a value is not of the type or out of the range."""
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        if value is None and type(None) in get_args(hint):
            return
        hint = next(h for h in get_args(hint) if h is not type(None))
        origin = get_origin(hint)
    if origin is Literal:
        if not any(value is one or (type(value) is type(one) and value == one)
                   for one in get_args(hint)):  # fmt: skip
            accepted = ", ".join(map(str, get_args(hint)))
            raise BasisError(f"{label} must be one of {accepted}, not {value!r:.60}")
        return
    if origin is tuple:
        if not isinstance(value, tuple | list) or not 1 <= len(value) <= _LONGEST:
            raise BasisError(
                f"{label} must be a list of 1 to {_LONGEST} entries, not {value!r:.60}"
            )
        for item in value:
            _check(item, get_args(hint)[0], metadata, label)
        return
    if hint is bool:
        if not isinstance(value, bool):
            raise BasisError(f"{label} must be true or false, not {value!r:.60}")
        return
    if hint is int:
        _check_whole(value, metadata, label)
    elif hint is float:
        _check_number(value, metadata, label)
    elif hint is str and not isinstance(value, str):
        raise BasisError(f"{label} must be text, not {value!r:.60}")


def _check_whole(value: Any, metadata: Mapping[str, Any], label: str) -> None:
    least, most = metadata.get("least", 0), metadata.get("most", LARGEST)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BasisError(
            f"{label} must be a whole number from {least} to {most}, not {value!r:.60}"
        )


def _check_number(value: Any, metadata: Mapping[str, Any], label: str) -> None:
    least, most = metadata.get("at_least", -math.inf), metadata.get("at_most", math.inf)
    above = metadata.get("above", -math.inf)
    try:
        fits = not isinstance(value, bool) and abs(value) < 1e30  # NaN is refused too
    except (TypeError, OverflowError):
        fits = False
    if fits and least <= value <= most and value > above:
        return
    parts = [
        f"more than {above:g}" if above > -math.inf else "",
        f"at least {least:g}" if least > -math.inf else "",
        f"at most {most:g}" if most < math.inf else "",
    ]
    said = " and ".join(part for part in parts if part)
    raise BasisError(f"{label} must be a number{f', {said}' if said else ''}, not {value!r:.60}")


Choice = Literal["first", "energy", "likelihood", "both", "mean", "draw"]
"""How several samples become one answer."""
CHOICES: tuple[Choice, ...] = get_args(Choice)
"""Ways to make one answer of several samples."""

Effort = Literal["fast", "balanced", "best"]
"""The names of efforts."""
EFFORTS: dict[str, int] = dict(zip(get_args(Effort), (100, 300, 1000), strict=True))
"""Named efforts, in network calls per source."""
DEFAULT_EFFORT: Effort = "balanced"
"""The effort where neither an effort nor a sampler is given."""

SamplerName = Literal[
    "ancestral",
    "ascent",
    "basis",
    "dirac",
    "gibbs",
    "greedy",
    "langevin",
    "noise-conditioned",
    "posterior-ode",
    "posterior-sde",
]
"""The samplers of the package, for type checkers: those of `basis.samplers.SAMPLERS`."""
