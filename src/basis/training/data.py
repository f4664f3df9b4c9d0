"""Training data: signals of one shape and the range of their values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.priors.card import check_value_range
from basis.signals.arrays import as_floats as to_floats
from basis.signals.arrays import as_tensor, to_batch
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet

Data = str | os.PathLike[str] | ImageSet | Tensor | np.ndarray[Any, Any]
"""What `train` accepts as data."""

_PICTURE_STD = 0.3
"""The standard deviation of the pictures for which the noise levels were chosen."""
_SOUND = (".wav", ".flac", ".mp3", ".ogg")
_MOST_CLASSES = 65_536
"""Larger labels are not class numbers."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training data.

    Attributes:
        values: (n, channels, *size); uint8, which stands for [0, 1], or float32.
        low, high: Bounds of the values as floats, or None.
        name: The name of the data on cards.
        labels: The class of each item, (n,), or None.
        classes: The names of the labels; empty if there are none.
        selected: The labels that were selected; empty if all were.
    """

    values: Tensor
    low: float | None
    high: float | None
    name: str
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    selected: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, *size) of one signal."""
        return tuple(self.values.shape[1:])

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of all values, as floats."""
        return moments(self.values)

    def about(self, kept: int) -> dict[str, Any]:
        """The card's entry about the data, of which the first `kept` items are trained on."""
        about: dict[str, Any] = {"name": self.name, "images": kept}
        return about | ({"classes": list(self.selected)} if self.selected else {})


def training_data(
    data: Data,
    value_range: tuple[float | None, float | None] | None = None,
    *,
    size: int | None = None,
    classes: Sequence[int] | None = None,
    root: str | Path | None = None,
) -> TrainingData:
    """Reads and checks the data that `train` is given; arguments as there."""
    if isinstance(data, str | os.PathLike):
        check_not_sound(Path(data))
        data = load_images(os.fspath(data), "train", root=root, size=size)
    elif size is not None:
        raise BasisError("size resizes pictures that are read from files; this data is in memory")
    selected = tuple(sorted(set(classes or ())))
    if selected:
        if not isinstance(data, ImageSet):
            raise BasisError("classes selects items by their labels; an array has none")
        data = data.only(selected)
    labels: Tensor | None = None
    names: tuple[str, ...] = ()
    if isinstance(data, ImageSet):
        values, name = data.images, data.name
        if data.labels is not None and _are_classes(data.labels):
            labels = data.labels
            names = data.classes or tuple(map(str, range(int(labels.max()) + 1)))
    else:
        values, name = _from_array(data), "data"
    check_values(values)
    check_value_range(value_range, "value_range")
    low, high = value_range or (None, None)
    if values.dtype == torch.uint8:
        if (low, high) not in ((None, None), (0.0, 1.0)):
            raise BasisError(
                f"8-bit values stand for [0, 1], not for value_range {value_range}; "
                "use floats for another range"
            )
        return TrainingData(values, 0.0, 1.0, name, labels, names, selected)
    values = values.float()
    least, most = values.min().item(), values.max().item()
    if not (np.isfinite(least) and np.isfinite(most)):
        raise BasisError("the training data has values that are not finite numbers")
    if (low is not None and least < low) or (high is not None and most > high):
        raise BasisError(
            f"the training data has values from {least:g} to {most:g}, outside of value_range "
            f"{value_range}"
        )
    return TrainingData(values, low, high, name, labels, names, selected)


def _from_array(data: object) -> Tensor:
    """An array or tensor as training data, (n, channels, *size); uint8 is kept."""
    where = "the training data"
    values = as_tensor(data, where) if isinstance(data, np.ndarray) else data
    if not isinstance(values, Tensor):
        raise BasisError(
            f"training data is a folder, a named data set, an array or a tensor, not "
            f"{type(data).__name__}"
        )
    if values.dtype != torch.uint8:
        values = to_floats(values, where)
    if values.ndim < 2:
        raise BasisError(
            f"{where} has shape {tuple(values.shape)}; (n, channels, *size) is accepted"
        )
    return to_batch(values, where, many=True).contiguous()


def check_not_sound(path: Path) -> None:
    """Raises for a sound file or a folder of sound files."""
    files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    sound = next((file for file in files if file.suffix.lower() in _SOUND), None)
    if sound is not None:
        raise BasisError(
            f"{sound} is sound, which is not read for training yet; accepted: pictures, or sound "
            "as an array (n, channels, length)"
        )


def interleaved(data: TrainingData) -> TrainingData:
    """The same items with the classes spread evenly if the data is sorted by class.

    Folders are sorted by class; the held-out items at the end would all be of the last class.
    """
    labels = data.labels
    if labels is None or len(labels) < 2 or labels[0] == labels[-1] or (labels.diff() < 0).any():
        return data
    counts = torch.bincount(labels)
    number = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels]  # within its class
    order = ((number + 0.5) / counts[labels].double()).argsort(stable=True)
    return replace(data, values=data.values[order], labels=labels[order])


def check_values(values: Tensor) -> None:
    """Raises if a tensor cannot be training data."""
    if values.ndim < 2 or not (values.dtype == torch.uint8 or values.is_floating_point()):
        raise BasisError(
            "training data must be uint8 or floats of shape (n, channels, *size), not "
            f"{values.dtype} of shape {tuple(values.shape)}"
        )


def as_floats(values: Tensor) -> Tensor:
    """8-bit values as floats in [0, 1]; floats unchanged."""
    return values.float().div_(255) if values.dtype == torch.uint8 else values.float()


def moments(values: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of all values; of 8-bit values from their histogram."""
    if values.dtype == torch.uint8:
        counts = torch.bincount(values.flatten().int(), minlength=256).double()
        levels = torch.arange(256).double() / 255
        mean = (counts * levels).sum() / counts.sum()
        variance = (counts * (levels - mean).square()).sum() / counts.sum()
        return round(mean.item(), 4), round(variance.sqrt().item(), 4)
    pieces = values.split(4096)  # in double precision one piece at a time
    center = sum(p.double().sum().item() for p in pieces) / values.numel()
    square = sum((p.double() - center).square().sum().item() for p in pieces) / values.numel()
    return float(f"{center:.6g}"), float(f"{square**0.5:.6g}")


def noise_scale(values: Tensor) -> float:
    """The factor by which noise levels for pictures are scaled for this data."""
    if not values.numel() or values.amin() == values.amax():
        raise BasisError("all values of the training data are the same")
    if values.dtype == torch.uint8:
        return 1.0
    std = moments(values)[1]
    if not std > 0:
        raise BasisError("the values of the training data differ by less than float precision")
    return std / _PICTURE_STD


def fingerprint(values: Tensor, held_out: Tensor | None) -> dict[str, Any]:
    """What distinguishes one set of training data from another, as JSON."""
    digest = hashlib.sha256()
    for part in [values] if held_out is None else [values, held_out]:
        for piece in part.split(4096):
            digest.update(piece.contiguous().cpu().numpy().tobytes())
    return {
        "images": len(values),
        "held_out": 0 if held_out is None else len(held_out),
        "shape": list(values.shape[1:]),
        "type": str(values.dtype).removeprefix("torch."),
        "sha256": digest.hexdigest(),
    }


def _are_classes(labels: Tensor) -> bool:
    """Whether labels, (n,), are class numbers."""
    return bool(len(labels) and labels.min() >= 0 and labels.max() < _MOST_CLASSES)
