"""Images named on the command line: files, or places in a data set such as `sample:3` or `mnist:120`."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.data import load_images, read_image

_REFERENCE = re.compile(r"(?P<name>[a-z][a-z0-9-]*):(?P<index>\d+)")


def source_image(reference: str, root: str | None) -> Tensor:
    """One image, (channels, height, width) in [0, 1]."""
    found = _REFERENCE.fullmatch(reference)
    if found and not Path(reference).exists():
        images = load_images(found["name"], "test", root=root)
        index = int(found["index"])
        if index >= len(images):
            raise BasisError(f"{reference}: {found['name']} has test images 0 to {len(images) - 1}")
        return images.floats(torch.tensor([index]))[0]
    image = read_image(reference)
    if image.min() < 0 or image.max() > 1:
        raise BasisError(f"{reference}: a source's pixels must lie in [0, 1]")
    return image


def source_images(references: list[str], root: str | None) -> Tensor:
    """Several images of one shape, (count, channels, height, width)."""
    images = [source_image(r, root) for r in references]
    for reference, image in zip(references, images, strict=True):
        if image.shape != images[0].shape:
            raise BasisError(
                f"{reference} has shape {tuple(image.shape)}, {references[0]} has "
                f"{tuple(images[0].shape)}; sources must have one shape"
            )
    return torch.stack(images)
