"""weights.safetensors: the weights of a prior's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from basis._errors import BasisError
from basis._files import sha256, whole_file
from basis._weights import read_safetensors

WEIGHTS = "weights.safetensors"
"""The file of a prior's folder that holds its weights."""


def write_weights(folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype) -> int:
    """Writes weights into a prior's folder, whole or not at all; returns how many there are."""
    tensors = {n: t.detach().to("cpu", dtype).contiguous() for n, t in weights.items()}
    broken = [n for n, t in tensors.items() if not t.isfinite().all()]
    if broken:
        raise BasisError(
            f"the weights hold values that are no finite numbers ({broken[0]}); {folder} is left "
            "as it was"
        )
    with whole_file(folder / WEIGHTS) as path:
        save_file(tensors, path)
    return sum(t.numel() for t in tensors.values())


def checked_weights(folder: Path, checksum: str) -> dict[str, Tensor]:
    """The weights of a prior's folder, as long as their checksum is the one on the card."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise BasisError(f"{folder} holds no {WEIGHTS}")
    if sha256(path) != checksum:
        raise BasisError(
            f"{path} is damaged or was changed: its checksum is not the one on its card; "
            "put the original file back"
        )
    return read_safetensors(path)
