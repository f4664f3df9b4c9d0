"""Results that are computed once: a run is made of shards, each written whole, and goes on where it was stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis._files import whole_file
from basis._version import __version__


@dataclass(frozen=True)
class Shard:
    """What a piece of work gave: tensors, plain values, and the seconds it took."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Shards:
    """A folder of shards, each named by what was computed and with which settings.

    Args:
        folder: Where they lie.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(
        self, name: str, settings: Mapping[str, Any], make: Callable[[], Shard], what: str = ""
    ) -> Shard:
        """The shard of this name and these settings: from the folder, else made now and kept."""
        told = json.dumps({"version": __version__, **settings}, sort_keys=True, default=str)
        key = hashlib.sha256(f"{name} {told}".encode()).hexdigest()[:16]
        path = self.folder / f"{name}-{key}.safetensors"
        found = _read(path)
        if found is not None:
            return found
        started = time.perf_counter()
        made = make()
        shard = Shard(made.tensors, made.values, time.perf_counter() - started)
        record = {"values": shard.values, "seconds": shard.seconds, "settings": told}
        tensors = {n: t.detach().cpu().contiguous() for n, t in shard.tensors.items()}
        with whole_file(path) as temporary:
            save_file(tensors, temporary, {"shard": json.dumps(record)})
        return shard


def _read(path: Path) -> Shard | None:
    """A shard from disk; None where there is none that can be read."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            record = json.loads(file.metadata()["shard"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError):
        return None
    return Shard(tensors, record["values"], record["seconds"])
