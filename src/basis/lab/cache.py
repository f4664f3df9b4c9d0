"""A folder of results: an interrupted run continues, and a repeated run is instant.

A result is kept for the version of the package, the settings, the data and the checksums of the
weights that it was computed with.
"""

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
from torch import Tensor, nn

from basis._version import __version__
from basis.files import whole_file
from basis.priors.prior import Prior


@dataclass(frozen=True)
class CachedResult:
    """Tensors of any shape, JSON values, and the seconds that computing them took."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class ResultCache:
    """A folder of results, one safetensors file each.

    A file carries a checksum of its content; a damaged one is computed again.

    Args:
        folder: Where the files are.
        fresh: Ignore files that were not written through this object.
    """

    def __init__(self, folder: str | Path, *, fresh: bool = False) -> None:
        self.folder, self.fresh = Path(folder), fresh
        self._written: set[Path] = set()

    def get(
        self, name: str, key: Mapping[str, Any], compute: Callable[[], CachedResult]
    ) -> CachedResult:
        """The result with this name and key, read from the folder or computed and written.

        Args:
            name: What is computed; the file name starts with it.
            key: Everything the result depends on except the version, see `fingerprint`.
            compute: Called if there is no such result.
        """
        text = fingerprint({"version": __version__} | dict(key))
        digest = hashlib.sha256(f"{name} {text}".encode()).hexdigest()[:20]
        path = self.folder / f"{name}-{digest}.safetensors"
        found = None if self.fresh and path not in self._written else _read(path)
        if found is not None:
            return found
        started = time.perf_counter()
        made = compute()
        tensors = {n: t.detach().cpu().contiguous() for n, t in made.tensors.items()}
        result = CachedResult(tensors, made.values, time.perf_counter() - started)
        record = json.dumps({"values": result.values, "seconds": result.seconds, "key": text})
        with whole_file(path) as temporary:
            save_file(tensors, temporary, {"result": record, "sha256": _checksum(record, tensors)})
        self._written.add(path)
        return result


def fingerprint(value: Any) -> str:
    """Text that identifies settings, tensors, networks, and collections of these.

    A tensor is identified by the hash of its values, a network by its class, its plain attributes
    and the hash of its weights, anything else by its `repr`, which for a dataclass has all fields.
    """
    return json.dumps(value, sort_keys=True, default=_identify)


def _identify(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _tensors({"": value})
    if isinstance(value, nn.Module):
        plain = {n: repr(v) for n, v in vars(value).items() if _is_plain(n, v)}
        about = value.describe() if isinstance(value, Prior) else {}
        return [type(value).__qualname__, weights_checksum(value), plain, about]
    return repr(value)


def weights_checksum(network: nn.Module) -> str:
    """The SHA256 of all parameters and buffers."""
    return _tensors(dict(network.named_parameters()) | dict(network.named_buffers()))


def _tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _is_plain(name: str, value: Any) -> bool:
    # "training" depends on who ran the network last.
    plain = isinstance(value, bool | int | float | str | list | tuple)
    return plain and not name.startswith("_") and name != "training"


def _checksum(record: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(f"{record}{_tensors(tensors)}".encode()).hexdigest()


def _read(path: Path) -> CachedResult | None:
    """A result from disk; None if there is none or it is damaged."""
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
