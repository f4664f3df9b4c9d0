"""Folders of pictures, with or without a sub-folder for each class."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from basis._errors import BasisError
from basis.data._listing import PICTURES, find_pictures, split_folder
from basis.data._pictures import open_bytes
from basis.data._pixels import picture_pixels, square, to_channels
from basis.data._places import Split


def read_folder(
    folder: Path, split: Split, *, size: int | None = None, channels: int | None = None
) -> tuple[Tensor, Tensor | None, tuple[str, ...] | None]:
    """Images (n, c, h, w), labels and classes of the pictures in a folder, sorted by path.

    Where every picture lies in a sub-folder, the first-level sub-folders are the classes. Grey and
    colour mixed come out as colour.
    """
    folder = split_folder(folder, split)
    paths = [path for path in find_pictures(folder) if not _is_overview(path)]
    if not paths:
        raise BasisError(
            f"{folder} holds no images; accepted: files ending in {', '.join(PICTURES)}"
        )
    stacked = stack_pictures(((path, open_bytes(path)) for path in paths), size, channels)

    parents = [path.relative_to(folder).parts[:-1] for path in paths]
    if not all(parents):
        return stacked, None, None
    classes = tuple(sorted({parts[0] for parts in parents}))
    labels = torch.tensor([classes.index(parts[0]) for parts in parents], dtype=torch.int64)
    return stacked, labels, classes


def _is_overview(path: Path) -> bool:
    """Whether a picture is a panel that `separate`, `colorize` or `sample` wrote by a record."""
    stem, dash, kind = path.stem.rpartition("-")
    return kind in ("panel", "states", "samples") and (
        path.with_name(f"{stem}{dash}run.json").is_file()
    )


def stack_pictures(
    pictures: Iterable[tuple[Path, Image.Image]], size: int | None, channels: int | None
) -> Tensor:
    """Named pictures as (n, c, h, w): cropped and scaled to `size`, or of one size already."""
    images: list[Tensor] = []
    first = Path()
    for path, picture in pictures:
        if channels is not None:
            picture = picture.convert("L" if channels == 1 else "RGB")
        if size is not None:
            picture = square(picture, size)
        image = torch.from_numpy(picture_pixels(picture))
        first = first if images else path
        if images and image.shape[1:] != images[0].shape[1:]:
            raise BasisError(
                f"{path} is {_size(image)} pixels and {first} is {_size(images[0])}; "
                "give a size (--size) to crop and resize all to"
            )
        images.append(image)
    most = max(len(image) for image in images)
    return torch.stack([to_channels(image, most) for image in images])


def _size(image: Tensor) -> str:
    return f"{image.shape[-1]}x{image.shape[-2]}"
