"""Rooms whose files are found by name: a new file is all that a new method takes."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

__all__ = ["import_modules", "module_names"]


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
