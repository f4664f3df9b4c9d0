"""Sources named on the command line: files, or images of a data set, as `sample:3`."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.signals.datasets import load_images
from basis.signals.old_observation import read_image, read_mixture

_REFERENCE = re.compile(r"(?P<name>[a-z][a-z0-9-]*):(?P<index>\d+)")


def source_image(reference: str, root: str | None, dims: int | None = None) -> Tensor:
    """One source, (channels, *size): an image in [0, 1], or a signal of other axes as it is.

    Args:
        reference: A file, or a data set's name and an index with a colon between them.
        root: The data root.
        dims: The axes of the signals' size in .npy files, as `basis.signals.read_array` takes it.
    """
    found = _REFERENCE.fullmatch(reference)
    if found and not Path(reference).exists():
        images = load_images(found["name"], "test", root=root)
        index = int(found["index"])
        if index >= len(images):
            raise BasisError(f"{reference}: {found['name']} has test images 0 to {len(images) - 1}")
        return images.floats(torch.tensor([index]))[0]
    if Path(reference).suffix.lower() == ".npy":
        signals = read_mixture(reference, dims=dims).mixture
        if len(signals) != 1:
            raise BasisError(f"{reference} holds {len(signals)} signals; one is needed here")
        if signals.ndim != 4:
            return signals[0]
    image = read_image(reference)
    if image.min() < 0 or image.max() > 1:
        raise BasisError(
            f"{reference}: a source's pixels must lie in [0, 1]; sound is read with --dims 1"
        )
    return image


def source_images(references: list[str], root: str | None, dims: int | None = None) -> Tensor:
    """Several sources of one shape, (count, channels, *size)."""
    images = [source_image(r, root, dims) for r in references]
    for reference, image in zip(references, images, strict=True):
        if image.shape != images[0].shape:
            raise BasisError(
                f"{reference} has shape {tuple(image.shape)}, {references[0]} has "
                f"{tuple(images[0].shape)}; sources must have one shape"
            )
    return torch.stack(images)
