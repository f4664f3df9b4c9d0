"""Weights that others saved, read without executing anything in them."""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from basis.errors import BasisError
from basis.files import check_fits_memory, check_regular, reading

Shapes = Mapping[str, Sequence[int]]
"""Shapes of tensors by name."""

_SLACK = 1 << 16
"""Numbers that a network may have in addition to the weights in the file, such as tables."""

_ModuleT = TypeVar("_ModuleT", bound=nn.Module)


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
    check_regular(path)
    with reading(path, "a checkpoint"):
        if zipfile.is_zipfile(path):
            # torch stores without compression: what decompresses to more was not written by it.
            with zipfile.ZipFile(path) as archive:
                unfolded = sum(member.file_size for member in archive.infolist())
            if unfolded > path.stat().st_size:
                raise ValueError(f"it decompresses to {unfolded} bytes, unlike files of torch.save")
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise BasisError(
                f"{path} is refused: it holds more than tensors, or is damaged; "
                "nothing in it was executed"
            ) from error


def tensors_of(state: Any, path: Path) -> dict[str, Tensor]:
    """The state itself, checked to be names and tensors."""
    if not isinstance(state, dict) or not all(
        isinstance(n, str) and isinstance(t, Tensor) for n, t in state.items()
    ):
        raise BasisError(f"{path} does not hold a state of tensors")
    for name, t in state.items():
        if t.layout != torch.strided or t.is_quantized or t.is_complex() or t.is_meta:
            raise BasisError(
                f"{path}: the tensor {name!r:.60} is sparse, quantized, complex or without "
                "values; dense tensors of real numbers are accepted"
            )
    return state


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    check_regular(path)
    with reading(path, "a safetensors file, or is damaged"):
        return load_file(path)


def read_header(path: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """The shapes of a safetensors file's tensors by name, and its metadata; no tensor is read."""
    check_regular(path)
    with (
        reading(path, "a safetensors file, or is damaged"),
        safe_open(path, framework="pt") as file,
    ):
        names = list(file.keys())
        return {n: tuple(file.get_slice(n).get_shape()) for n in names}, file.metadata() or {}


def build_fitting(make: Callable[[], _ModuleT], shapes: Shapes, refusal: str) -> _ModuleT:
    """The module that `make` builds; building stops as soon as it outgrows its weights.

    A description of a few bytes can have any number of layers of any size. Every weight is checked
    when a layer registers it, before it is filled in: more weights than the file has, or larger
    ones, are refused.

    Args:
        make: Builds the module.
        shapes: Those of the weights it is to hold.
        refusal: What an error begins with.
    """
    with _registration(_Budget(shapes, refusal)):
        return make()


class _Budget:
    """Counts what a network registers against what a file holds."""

    def __init__(self, shapes: Shapes, refusal: str) -> None:
        sizes = [math.prod(shape) for shape in shapes.values()]
        self.refusal = refusal
        self.largest = max(sizes, default=0) + _SLACK
        self.total = sum(sizes) + 4 * _SLACK
        self.count = len(sizes) + 64
        check_fits_memory(4 * sum(sizes), "the network")

    def parameter(self, module: nn.Module, name: str, value: Tensor | None) -> None:
        if value is None:
            return
        self.count -= 1
        self.total -= value.numel()
        if self.count < 0 or self.total < 0 or value.numel() > self.largest:
            raise BasisError(f"{self.refusal}: it describes more weights than the file holds")

    def buffer(self, module: nn.Module, name: str, value: Tensor | None) -> None:
        if value is not None and value.numel() > self.largest + (1 << 24):
            raise BasisError(f"{self.refusal}: it describes larger tables than the file holds")


@contextmanager
def _registration(budget: _Budget) -> Iterator[None]:
    hooks = (
        register_module_parameter_registration_hook(budget.parameter),
        register_module_buffer_registration_hook(budget.buffer),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def put_weights(module: nn.Module, weights: Mapping[str, Tensor], refusal: str) -> None:
    """Loads the parameters of a module; one that does not fit is named in the error."""
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
