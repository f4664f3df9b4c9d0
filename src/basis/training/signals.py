"""What is trained on: signals of one shape, the range of their values, and their fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.signals.image_set import ImageSet

_PICTURE_SPREAD = 0.3
"""The standard deviation of pictures for which noise levels were chosen."""
_MOST_CLASSES = 65_536
"""Labels beyond this are no numbers of classes."""


@dataclass(frozen=True, eq=False)
class Signals:
    """Training data.

    Attributes:
        values: (n, channels, *size); uint8 of 8-bit values that stand for [0, 1], or float32.
        low, high: Bounds of the values as floats, or None.
        name: What cards call the data.
        labels: The class of each item, (n,), where the data tells; None where not.
        classes: What each label stands for; empty where the data does not tell.
    """

    values: Tensor
    low: float | None
    high: float | None
    name: str
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, *size) of one signal."""
        return tuple(self.values.shape[1:])

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of all values, as floats."""
        return moments(self.values)


def as_signals(
    data: ImageSet | Tensor | np.ndarray[Any, Any], low: float | None, high: float | None
) -> Signals:
    """Training data from what `train` takes, checked."""
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    if isinstance(data, ImageSet):
        values, name = data.images, data.name
        if data.labels is not None and _are_classes(data.labels):
            labels = data.labels
            classes = data.classes or tuple(map(str, range(int(labels.max()) + 1)))
    else:
        values, name = torch.as_tensor(data), "data"
    check_values(values)
    if values.dtype == torch.uint8:
        if (low, high) not in ((None, None), (0.0, 1.0)):
            raise BasisError(
                f"8-bit values stand for [0, 1], not for low {low} and high {high}; "
                "give floats for another range"
            )
        return Signals(values, 0.0, 1.0, name, labels, classes)
    values = values.float()
    least, most = values.min().item(), values.max().item()
    if not (np.isfinite(least) and np.isfinite(most)):
        raise BasisError("the training data has values that are not finite numbers")
    if (low is not None and least < low) or (high is not None and most > high):
        raise BasisError(
            f"the training data has values from {least:g} to {most:g}, outside of its bounds "
            f"low {low} and high {high}"
        )
    return Signals(values, low, high, name, labels, classes)


def interleaved(signals: Signals) -> Signals:
    """The same items with their classes spread evenly, where each class came after another.

    A folder has its classes so, and those held out, at the end, would be of its last class alone.
    """
    labels = signals.labels
    if labels is None or len(labels) < 2 or labels[0] == labels[-1] or (labels.diff() < 0).any():
        return signals
    counts = torch.bincount(labels)
    number = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels]  # within its class
    order = ((number + 0.5) / counts[labels].double()).argsort(stable=True)
    return replace(signals, values=signals.values[order], labels=labels[order])


def check_values(values: Tensor) -> None:
    """Raises where a tensor is nothing to train on."""
    if values.ndim < 2 or not (values.dtype == torch.uint8 or values.is_floating_point()):
        raise BasisError(
            "training data must be uint8 or floats of shape (n, channels, ...), not "
            f"{values.dtype} of shape {tuple(values.shape)}"
        )


def as_floats(values: Tensor) -> Tensor:
    """8-bit values as floats in [0, 1]; floats as they are."""
    return values.float().div_(255) if values.dtype == torch.uint8 else values.float()


def moments(values: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of all values; 8-bit ones from their histogram."""
    if values.dtype == torch.uint8:
        counts = torch.bincount(values.flatten().int(), minlength=256).double()
        levels = torch.arange(256).double() / 255
        mean = (counts * levels).sum() / counts.sum()
        variance = (counts * (levels - mean).square()).sum() / counts.sum()
        return round(mean.item(), 4), round(variance.sqrt().item(), 4)
    pieces = values.split(4096)  # in double precision a piece at a time
    centre = sum(p.double().sum().item() for p in pieces) / values.numel()
    square = sum((p.double() - centre).square().sum().item() for p in pieces) / values.numel()
    return float(f"{centre:.6g}"), float(f"{square**0.5:.6g}")


def noise_unit(values: Tensor) -> float:
    """What noise levels for pictures are multiplied by for data of another spread."""
    if not values.numel() or values.amin() == values.amax():
        raise BasisError("all values of the training data are the same")
    if values.dtype == torch.uint8:
        return 1.0
    spread = moments(values)[1]
    if not spread > 0:
        raise BasisError("the values of the training data do not differ by what floats can tell")
    return spread / _PICTURE_SPREAD


def fingerprint(values: Tensor, held_out: Tensor | None) -> dict[str, Any]:
    """What tells one set of training data from another, in JSON's types."""
    digest = hashlib.sha256()
    parts = [values] if held_out is None else [values, held_out]
    for part in parts:
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
    """Whether labels, (n,), are numbers of classes."""
    return bool(len(labels) and labels.min() >= 0 and labels.max() < _MOST_CLASSES)
