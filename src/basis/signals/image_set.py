"""Sets of images or other signals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from basis.errors import BasisError

Split = Literal["train", "test"]
"""The parts of a data set: what priors are trained on, and what they are measured on."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, or other signals of one shape, with labels if the source has them.

    Images are uint8, a quarter of the memory of floats. Signals such as sound are float32, with any
    number of axes and any range of values. `floats` returns either as floats.
    """

    images: Tensor = field(repr=False)
    """(n, channels, *size), uint8 (255 stands for 1) or float32"""
    labels: Tensor | None = field(repr=False)
    """int64 (n,), or None"""
    name: str
    """short name: `mnist`, or that of the file or folder"""
    source: str
    """one line that says where the images come from"""
    classes: tuple[str, ...] | None = None
    """the name of each label, or None"""

    def __post_init__(self) -> None:
        if self.images.dtype not in (torch.uint8, torch.float32) or self.images.ndim < 3:
            raise BasisError(
                f"{self.name}: images are {self.images.dtype} of shape {tuple(self.images.shape)}; "
                "uint8 or float32 of shape (n, channels, *size) is accepted"
            )
        labels = self.labels
        if labels is not None and (
            labels.dtype != torch.int64 or labels.shape != self.images.shape[:1]
        ):
            raise BasisError(
                f"{self.name}: labels are {labels.dtype} of shape {tuple(labels.shape)}; one whole "
                f"number for each of the {len(self.images)} images is accepted"
            )

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        kind = str(self.images.dtype).removeprefix("torch.")
        labels = "" if self.labels is None else ", with labels"
        return f"ImageSet({self.name!r}, {len(self)} of {shape}, {kind}{labels})"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> Tensor:
        """`floats(index)`: one signal (channels, *size) for a number, several for a slice."""
        return self.floats(index)

    def only(self, labels: Iterable[int]) -> ImageSet:
        """The images with one of `labels`, in the same order and with the same labels."""
        if self.labels is None:
            raise BasisError(f"{self.name} has no labels to select images by")
        wanted = sorted({int(label) for label in labels})
        known = set(self.labels.tolist() if self.classes is None else range(len(self.classes)))
        unknown = [label for label in wanted if label not in known]
        keep = torch.isin(self.labels, torch.tensor(wanted, dtype=torch.int64))
        if unknown or not keep.any():
            raise BasisError(
                f"{self.name} has no images with labels {unknown or wanted}; "
                f"its labels are {sorted(known)}"
            )
        return replace(self, images=self.images[keep], labels=self.labels[keep])

    def floats(self, index: Any = None) -> Tensor:
        """Float32 values of all images, or of those that `index` selects.

        Pixels are in [0, 1]; signals that are floats keep their values.
        """
        images = self.images if index is None else self.images[index]
        return images if images.is_floating_point() else images.float().div_(255)
