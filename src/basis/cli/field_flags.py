"""Command-line flags from the fields of dataclasses: training settings and sizes of networks."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from basis.cli.arguments import number
from basis.errors import BasisError
from basis.nn.kind import NetworkKind


def add_setting_flags(group: argparse._ArgumentGroup, settings: type[Any], **defaults: Any) -> None:
    """A flag for every field of a settings dataclass; `defaults` replace some of its own."""
    hints = get_type_hints(settings)
    for field in dataclasses.fields(settings):
        default = defaults.get(field.name, field.default)
        text = field.metadata["help"]
        if hints[field.name] is bool:
            group.add_argument(_flag(field.name), action="store_true", help=text)
            continue
        shown = text if default is None else f"{text} ({default:g})"
        convert = _converter(hints[field.name], field.metadata["least"])
        group.add_argument(_flag(field.name), type=convert, default=default, help=shown)


def settings_from(args: argparse.Namespace, settings: type[Any]) -> Any:
    """The settings that `add_setting_flags`' flags give."""
    return settings(**{f.name: getattr(args, f.name) for f in dataclasses.fields(settings)})


def add_size_flags(group: argparse._ArgumentGroup, families: Iterable[NetworkKind]) -> None:
    """A flag for every size that is the user's to choose.

    A size that several families have is one flag, whose help names the families.
    """
    found: dict[str, list[tuple[NetworkKind, dataclasses.Field[Any], Any]]] = {}
    for family in families:
        hints = get_type_hints(family.config)
        for field in _chosen(family):
            found.setdefault(field.name, []).append((family, field, hints[field.name]))
    for name, uses in found.items():
        families_of: dict[str, list[str]] = {}
        for family, field, _ in uses:
            default = f"{family.name} {_shown(field.default)}"
            families_of.setdefault(field.metadata["help"], []).append(default)
        texts = [f"{text} ({', '.join(kinds)})" for text, kinds in families_of.items()]
        hint = uses[0][2]
        settings: dict[str, Any] = {"help": "; ".join(texts), "default": None}
        if get_origin(hint) is Literal:
            settings["choices"] = get_args(hint)
        elif hint is bool:
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["type"] = _converter(hint, int(uses[0][1].metadata.get("at_least", 0)))
            if any(get_origin(h) is tuple for _, _, h in uses):
                settings["nargs"] = "+"
        group.add_argument(_flag(name), **settings)


def sizes_from(args: argparse.Namespace, family: NetworkKind) -> dict[str, Any]:
    """The sizes that `add_size_flags`' flags give for a family; those of others are refused."""
    hints = get_type_hints(family.config)
    own = {field.name for field in _chosen(family)}
    sizes = {}
    for name, families in _all_sizes().items():
        value = getattr(args, name, None)
        if value is None:
            continue
        if name not in own:
            raise BasisError(
                f"{_flag(name)} goes with architecture {' or '.join(families)}, not {family.name}"
            )
        if isinstance(value, list):
            value = tuple(value) if get_origin(hints[name]) is tuple else _single(name, value)
        sizes[name] = value
    return sizes


def _all_sizes() -> Mapping[str, list[str]]:
    """The families that have each size."""
    from basis.nn.kinds import KINDS

    found: dict[str, list[str]] = {}
    for family in KINDS.values():
        for field in _chosen(family) if family.trainable else ():
            found.setdefault(field.name, []).append(family.name)
    return found


def _chosen(family: NetworkKind) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(family.config or NetworkKind) if f.metadata.get("flag")]


def _single(name: str, values: list[Any]) -> Any:
    if len(values) != 1:
        raise BasisError(f"{_flag(name)} takes one number here, not {len(values)}")
    return values[0]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _converter(hint: Any, least: int) -> Callable[[str], Any]:
    kinds = {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}
    if str in kinds:
        return str
    return _whole_number(least) if int in kinds else number


def _whole_number(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
        if not least <= value < 2**63:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
        return value

    return convert
