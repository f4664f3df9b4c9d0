"""Weights that others saved, read without executing anything in them."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from basis._errors import BasisError


def read_weights(folder: Path, stem: str) -> dict[str, Tensor]:
    """The tensors of `stem`.safetensors in a folder, else of `stem`.bin."""
    safe, pickled = folder / f"{stem}.safetensors", folder / f"{stem}.bin"
    if safe.is_file():
        return read_safetensors(safe)
    if not pickled.is_file():
        raise BasisError(f"{folder} holds neither {safe.name} nor {pickled.name}")
    return tensors_of(read_pickle(pickled), pickled)


def read_pickle(path: Path) -> Any:
    """What torch.save wrote, as long as it is tensors and plain containers."""
    if not path.is_file():
        raise BasisError(f"{path}: there is no such file")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BasisError(
            f"{path} is refused: it holds more than tensors, or is damaged; "
            "nothing in it was executed"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise BasisError(f"{path} is no checkpoint, or damaged: {line}") from error


def tensors_of(state: Any, path: Path) -> dict[str, Tensor]:
    """The state itself, checked to be names and tensors."""
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise BasisError(f"{path} does not hold a state of tensors")
    return state


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise BasisError(f"{path} is not a safetensors file, or damaged: {error}") from error


def put_weights(module: nn.Module, weights: Mapping[str, Tensor], refusal: str) -> None:
    """Gives a module its parameters, or says in one line which of them does not fit."""
    wanted = {name: p.shape for name, p in module.named_parameters()}
    found = {name: t.shape for name, t in weights.items()}
    odd = sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
    if odd:
        raise BasisError(f"{refusal}: {odd[0]}")
    module.load_state_dict(dict(weights), strict=False)


def channels_last(module: nn.Module) -> nn.Module:
    """Lays out the weights of 2-D convolutions channels last, which is faster; returns the module.

    `Module.to(memory_format=...)` would refuse modules with weights of five axes.
    """
    for p in module.parameters():
        if p.ndim == 4:
            p.data = p.data.to(memory_format=torch.channels_last)
    return module
