"""What a job is told from others by: task, number and values of its mixtures, all settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._reading import read_json


def read_record(path: Path) -> dict[str, Any] | None:
    """What a job's file says of it; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        found = read_json(path, "a job")
    except BasisError as error:
        raise BasisError(damaged_line(path)) from error
    return found if isinstance(found, dict) else {}


def damaged_line(path: Path) -> str:
    """What to say of a job's file that is no such file any more."""
    return f"{path} is damaged; give another --out, or remove {path.parent} to begin anew"


def difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What sets two jobs apart, in a few words."""
    for key in ("task", "count"):
        if was.get(key) != now[key]:
            return f"{key} {was.get(key)} -> {now[key]}"
    path = _first_change(was.get("settings"), now["settings"])
    return path or "of mixtures with other values"


def _first_change(was: Any, now: Any, path: str = "") -> str:
    """The first setting that differs, with both values; nothing where none does."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [*now, *(key for key in was if key not in now)]
        pairs = [(f"{path}.{key}".lstrip("."), was.get(key), now.get(key)) for key in keys]
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = [(path, *pair) for pair in zip(was, now, strict=True)]
    else:
        return "" if was == now else f"{path} {json.dumps(was)[:40]} -> {json.dumps(now)[:40]}"
    return next(filter(None, (_first_change(old, new, at) for at, old, new in pairs)), "")


def digest(identity: Mapping[str, Any]) -> str:
    """The mark that shards and stores carry."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
