"""Descriptions of values that are equal exactly where the values are: what cached results go by."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from basis.lab.code_hash import class_code, function_code
from basis.priors.card import Card

_WORDS = {"title", "data", "training", "quality", "license", "note"}
"""What a card tells its readers, and no computation."""


def fingerprint(value: Any) -> Any:
    """A description of a value that can be written as JSON.

    Numbers and texts stand for themselves, tensors for the hash of their content, settings for all
    their fields, networks for the hash of their weights, functions and classes for that of their
    code. An object that is none of these is described by its class and its public attributes.
    """
    return _describe(value, ())


def _describe(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path | torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Tensor | np.ndarray):
        return _describe_tensors({"": torch.as_tensor(value)})
    if id(value) in above:
        return "(itself)"
    above = (*above, id(value))
    if isinstance(value, Mapping):
        return {str(k): _describe(v, above) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_describe(v, above) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, type):
        return {"class": _name(value), "code": class_code(value)}
    if isinstance(value, functools.partial):
        return [_describe(v, above) for v in (value.func, value.args, value.keywords)]
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return {"code": function_code(value), "closure": [_describe(c, above) for c in cells]}
    return _describe_object(value, above)


def _describe_object(value: Any, above: tuple[int, ...]) -> dict[str, Any]:
    about: dict[str, Any] = {"class": _name(type(value)), "code": class_code(type(value))}
    if isinstance(value, nn.Module):
        about |= _describe_network(value, above)
    if isinstance(value, Card):
        names = [field.name for field in dataclasses.fields(value) if field.name not in _WORDS]
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = [name for name in getattr(value, "__dict__", {}) if _is_public(name)]
    return about | {name: _describe(getattr(value, name), above) for name in sorted(names)}


def _describe_network(network: nn.Module, above: tuple[int, ...]) -> dict[str, Any]:
    """The weights, the code and the settings of a network and of all that it consists of."""
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    kinds = {_name(type(m)): class_code(type(m)) for m in network.modules()}
    settings = {
        part: {name: _describe(v, above) for name, v in vars(m).items() if _is_setting(name, v)}
        for part, m in network.named_modules()
    }
    return {"tensors": _describe_tensors(tensors), "kinds": kinds, "parts": settings}


def _is_setting(name: str, value: Any) -> bool:
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple | Mapping)
    return _is_public(name) and (plain or dataclasses.is_dataclass(value))


def _is_public(name: str) -> bool:
    # Whether a network is in training mode is set by whoever runs it.
    return not name.startswith("_") and name != "training"


def _describe_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
