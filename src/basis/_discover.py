"""Rooms whose files are found by name: a new file is all that a new method takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["import_modules", "lazy_door", "module_names"]


def module_names(room: str) -> list[str]:
    """The files of `basis/<room>` (for example "samplers/methods") without a leading underscore.

    Nothing is imported, so that a command line can list methods before torch is loaded.
    """
    folder = Path(__file__).parent.joinpath(*room.split("/"))
    return sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))


def import_modules(room: str) -> dict[str, ModuleType]:
    """The modules of `module_names`, imported, by file name."""
    package = "basis." + room.replace("/", ".")
    return {name: importlib.import_module(f"{package}.{name}") for name in module_names(room)}


def lazy_door(room: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a room whose public names load where they are first used.

    Args:
        room: The room's module name.
        homes: The private module that each public name lives in.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{room}.{homes[name]}"), name)

    return load
