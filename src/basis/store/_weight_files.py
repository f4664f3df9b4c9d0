"""weights.safetensors: the weights of a prior's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from basis._errors import BasisError
from basis._files import sha256, sync, whole_file
from basis._weights import read_safetensors

WEIGHTS = "weights.safetensors"
"""The file of a prior's folder that holds its weights."""
NEXT = "weights-next.safetensors"
"""Weights that are written and whose card is not yet, or that only lack their name.

A folder changes from one prior to the next at the moment its card is replaced: before, the card is
that of the old weights; after, that of the next ones, whether or not these have their name.
"""


def write_weights(folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype) -> int:
    """Writes the next weights into a prior's folder, whole or not at all; returns how many there
    are. They count when there is a card of them and `settle` was called.
    """
    tensors = {n: t.detach().to("cpu", dtype).contiguous() for n, t in weights.items()}
    broken = [n for n, t in tensors.items() if not t.isfinite().all()]
    if broken:
        raise BasisError(
            f"the weights hold values that are no finite numbers ({broken[0]}); {folder} is left "
            "as it was"
        )
    with whole_file(folder / NEXT) as path:
        save_file(tensors, path)
    return sum(t.numel() for t in tensors.values())


def checked_weights(folder: Path, checksum: str) -> dict[str, Tensor]:
    """The weights of a prior's folder, as long as their checksum is the one on the card."""
    path = weights_path(folder, checksum)
    if not path.is_file():
        raise BasisError(f"{folder} holds no {WEIGHTS}")
    if sha256(path) != checksum:
        raise BasisError(
            f"{path} is damaged or was changed: its checksum is not the one on its card; "
            "put the original file back"
        )
    return read_safetensors(path)


def weights_path(folder: Path, checksum: str) -> Path:
    """Where the weights of a card with this checksum are: a writer may have been killed just
    before it gave them their name.
    """
    path, following = folder / WEIGHTS, folder / NEXT
    if following.is_file() and (not path.is_file() or sha256(path) != checksum):
        return following if sha256(following) == checksum else path
    return path


def settle(folder: Path) -> None:
    """Gives the next weights, whose card is written, their name."""
    os.replace(folder / NEXT, folder / WEIGHTS)
    sync(folder)
