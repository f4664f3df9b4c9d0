"""Results that are computed once: a run that was stopped goes on, and a second one is instant."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from basis.files import whole_file


@dataclass(frozen=True)
class CachedResult:
    """What a computation gave: tensors of any shape, plain values, and the seconds it took."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class ResultCache:
    """A folder of results, one file each, named by what was computed and from what.

    Files are written whole and carry a checksum of their content; one that is damaged is computed
    again.

    Args:
        folder: Where the files lie.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(
        self, name: str, key: Mapping[str, Any], compute: Callable[[], CachedResult]
    ) -> CachedResult:
        """The result of this name and key: from the folder, else computed now and written.

        Args:
            name: What is computed, the beginning of the file's name.
            key: Everything that the result depends on, as JSON can write it.
            compute: Called where there is no such result yet.
        """
        text = json.dumps(key, sort_keys=True)
        digest = hashlib.sha256(f"{name} {text}".encode()).hexdigest()[:20]
        path = self.folder / f"{name}-{digest}.safetensors"
        found = _read(path)
        if found is not None:
            return found
        started = time.perf_counter()
        made = compute()
        tensors = {n: t.detach().cpu().contiguous() for n, t in made.tensors.items()}
        result = CachedResult(tensors, made.values, time.perf_counter() - started)
        record = json.dumps({"values": result.values, "seconds": result.seconds, "key": text})
        with whole_file(path) as temporary:
            metadata = {"result": record, "sha256": _checksum(record, tensors)}
            save_file(tensors, temporary, metadata)
        return result


def _checksum(record: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(record.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> CachedResult | None:
    """A result from disk; None where there is none that is whole."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            record = metadata["result"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata["sha256"] != _checksum(record, tensors):
            return None
        parsed = json.loads(record)
        return CachedResult(tensors, parsed["values"], parsed["seconds"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
