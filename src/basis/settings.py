"""Settings: described once, checked in one place, turned into flags by one function.

A setting is a field of a dataclass made by `setting`, which holds its default, a description and
the accepted values. This module does not import torch, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from basis.errors import BasisError

Method = Literal["fast", "balanced", "best"]
METHODS: dict[str, int] = {"fast": 100, "balanced": 300, "best": 1000}
"""The named methods and their evaluations per source."""
DEFAULT_METHOD: Method = "balanced"

Estimate = Literal["mode", "mean", "sample"]
ESTIMATES: tuple[Estimate, ...] = get_args(Estimate)
"""What `Result.sources` can be."""

SAMPLER_NAMES = ("ancestral", "ascent", "basis", "dirac", "gibbs", "langevin")
"""The names of the samplers, known without importing torch."""

LARGEST = 2**53
"""No integer setting may exceed this; larger ones are not exact as floats."""
_LONGEST = 64


def setting(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    flag: bool = True,
) -> Any:
    """A dataclass field that describes a setting.

    Choices are given by the type of the field: `Literal["a", "b"]`.

    Args:
        default: The default value.
        help: A short description for help texts and documentation.
        at_least, at_most: Inclusive bounds.
        above, below: Exclusive bounds.
        flag: Whether the command line has a flag for it.
    """
    bounds = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    metadata = {"help": help, "flag": flag}
    metadata |= {name: value for name, value in bounds.items() if value is not None}
    return field(default=default, metadata=metadata)


def check_settings(settings: Any, where: str = "") -> None:
    """Checks the types and bounds of all fields of a dataclass; call it in `__post_init__`."""
    hints = get_type_hints(type(settings))
    for f in fields(settings):
        label = f"{where}: {f.name}" if where else f.name
        _check(getattr(settings, f.name), hints[f.name], f.metadata, label)


def settings_from(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A settings dataclass from values as JSON holds them; lists become tuples.

    Args:
        kind: The dataclass.
        values: Some of its fields.
        where: What error messages call the place that the values come from.
    """
    if not isinstance(values, Mapping):
        raise BasisError(f"{where} must be an object, not {values!r:.60}")
    known = {f.name: f for f in fields(kind)}
    for name in values:
        if name not in known:
            raise BasisError(
                f"{where} has no setting {name!r:.60}; its settings are {', '.join(known)}"
            )
    missing = [
        name
        for name, f in known.items()
        if name not in values and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise BasisError(f"{where} must have {', '.join(missing)}")
    hints = get_type_hints(kind)
    found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    for name, value in found.items():
        _check(value, hints[name], known[name].metadata, f"{where}: {name}")
        if hints[name] is float:  # an integer may be too large for a tensor
            found[name] = float(value)
    return kind(**found)


def add_flags(
    group: argparse._ActionsContainer, kind: type[Any], *, prefix: str = "", **defaults: Any
) -> None:
    """Adds a flag for every setting of a dataclass that has one.

    A flag that is not given leaves no entry in the parsed arguments, so that several dataclasses
    may share a flag and the defaults stay with the dataclass.

    Args:
        group: A parser or a group of one.
        kind: The dataclass.
        prefix: Put before the names of the flags.
        defaults: Defaults to show instead of those of the dataclass.
    """
    hints = get_type_hints(kind)
    taken = {option for action in group._actions for option in action.option_strings}
    for f in fields(kind):
        name = flag_name(prefix + f.name)
        if not f.metadata.get("flag") or name in taken:
            continue
        options: dict[str, Any] = {"default": argparse.SUPPRESS, "dest": prefix + f.name}
        options["help"] = _help(f, defaults.get(f.name, f.default))
        hint = _plain(hints[f.name])
        if hint is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif get_origin(hint) is Literal:
            options["choices"] = get_args(hint)
        elif get_origin(hint) is tuple:
            options |= {"type": _converter(get_args(hint)[0]), "nargs": "+"}
        else:
            options["type"] = _converter(hint)
        group.add_argument(name, **options)


def flags_to_settings(
    args: argparse.Namespace, kind: type[Any], prefix: str = ""
) -> dict[str, Any]:
    """The settings of a dataclass for which flags were given, by name."""
    given = {f.name: prefix + f.name for f in fields(kind) if f.metadata.get("flag")}
    values = {name: getattr(args, dest) for name, dest in given.items() if hasattr(args, dest)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


def flag_name(name: str) -> str:
    """The flag of a setting: `sigma_min` is `--sigma-min`."""
    return "--" + name.replace("_", "-")


def _help(f: Field[Any], default: Any) -> str:
    text = str(f.metadata["help"])
    if default is None or default is MISSING or isinstance(default, bool):
        return text
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    shown = f"{shown:g}" if isinstance(shown, float) else str(shown)
    return f"{text} (default {shown})".replace("%", "%%")


def _plain(hint: Any) -> Any:
    """The type without None."""
    if get_origin(hint) in (UnionType, Union):
        return next(h for h in get_args(hint) if h is not type(None))
    return hint


def _converter(hint: Any) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return int(text) if hint is int else float(text) if hint is float else text
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {kind}, not {text!r}") from None

    return convert


def _check(value: Any, hint: Any, metadata: Mapping[str, Any], label: str) -> None:
    """Raises if a value has the wrong type or is out of bounds."""
    if value is None and type(None) in get_args(hint):
        return
    hint = _plain(hint)
    origin = get_origin(hint)
    if origin is Literal:
        if not any(type(value) is type(one) and value == one for one in get_args(hint)):
            accepted = ", ".join(map(str, get_args(hint)))
            raise BasisError(f"{label} must be one of {accepted}, not {value!r:.60}")
    elif origin is tuple:
        if not isinstance(value, tuple | list) or not 1 <= len(value) <= _LONGEST:
            raise BasisError(
                f"{label} must be a list of 1 to {_LONGEST} entries, not {value!r:.60}"
            )
        for item in value:
            _check(item, get_args(hint)[0], metadata, label)
    elif hint is bool:
        if not isinstance(value, bool):
            raise BasisError(f"{label} must be true or false, not {value!r:.60}")
    elif hint is str:
        if not isinstance(value, str):
            raise BasisError(f"{label} must be text, not {value!r:.60}")
    elif hint in (int, float):
        _check_number(value, metadata, label, whole=hint is int)


def _check_number(value: Any, metadata: Mapping[str, Any], label: str, *, whole: bool) -> None:
    at_least = metadata.get("at_least", 0 if whole else -math.inf)
    at_most = metadata.get("at_most", LARGEST if whole else math.inf)
    above, below = metadata.get("above", -math.inf), metadata.get("below", math.inf)
    try:
        fits = not isinstance(value, bool) and abs(value) < 1e30  # also rejects NaN
    except (TypeError, OverflowError):
        fits = False
    if whole:
        fits = fits and isinstance(value, int)
    if fits and at_least <= value <= at_most and above < value < below:
        return
    parts = [
        f"more than {above:g}" if above > -math.inf else "",
        f"at least {at_least:g}" if at_least > -math.inf else "",
        f"less than {below:g}" if below < math.inf else "",
        f"at most {at_most:,}" if at_most < (LARGEST if whole else math.inf) else "",
    ]
    bounds = " and ".join(part for part in parts if part)
    kind = "a whole number" if whole else "a number"
    raise BasisError(f"{label} must be {kind}{f', {bounds}' if bounds else ''}, not {value!r:.60}")
