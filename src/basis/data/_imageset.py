"""A set of images or other signals of one shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from basis._errors import BasisError


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, or other signals of one shape, with labels where the source has them.

    Images stay uint8 (a quarter of the memory of floats). Signals such as sound are float32, of
    any number of axes and any range of values. `floats` gives either as floats.
    """

    images: Tensor = field(repr=False)
    """uint8, with 255 for 1, or float32 as it is: (n, channels, *size)"""
    labels: Tensor | None = field(repr=False)
    """int64 (n,), or None"""
    name: str
    """short name: `mnist`, or the file's or folder's own"""
    source: str
    """one line that says where the images come from"""
    classes: tuple[str, ...] | None = None
    """what each label stands for, or None"""

    def __post_init__(self) -> None:
        if self.images.dtype not in (torch.uint8, torch.float32) or self.images.ndim < 3:
            raise BasisError(
                f"{self.name}: images are {self.images.dtype} of shape {tuple(self.images.shape)}; "
                "uint8 or float32 of shape (n, channels, *size) is accepted"
            )
        if self.labels is not None and (
            self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]
        ):
            raise BasisError(
                f"{self.name}: labels are {self.labels.dtype} of shape {tuple(self.labels.shape)}; "
                f"one int64 for each of the {len(self.images)} images is accepted"
            )

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        kind = str(self.images.dtype).removeprefix("torch.")
        labels = "" if self.labels is None else ", with labels"
        return f"ImageSet({self.name!r}, {len(self)} of {shape}, {kind}{labels})"

    def __len__(self) -> int:
        return len(self.images)

    def only(self, labels: Iterable[int]) -> ImageSet:
        """The images that carry one of `labels`, in the same order and with the same labels."""
        if self.labels is None:
            raise BasisError(f"{self.name} has no labels, so none can be selected")
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
        """Float32 values of all images, or of those that `index` picks (as for a tensor).

        Pixels are in [0, 1]; signals that are floats already keep their values.
        """
        images = self.images if index is None else self.images[index]
        return images if images.is_floating_point() else images.float().div_(255)
