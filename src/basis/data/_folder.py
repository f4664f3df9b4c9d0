"""Folders of pictures, with or without a sub-folder for each class."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.data._pictures import open_picture, picture_bytes
from basis.data._pictures import SUFFIXES
from basis.data._pixels import square, to_channels
from basis.data._places import Split

SPLITS = ("train", "val", "test")


def read_folder(
    folder: Path, split: Split, *, size: int | None = None, channels: int | None = None
) -> tuple[Tensor, Tensor | None, tuple[str, ...] | None]:
    """Images (n, c, h, w), labels and classes of the pictures in a folder, in the order of their paths.

    Where every picture lies in a sub-folder, the first-level sub-folders are the classes. Grey and colour
    mixed come out as colour.
    """
    folder = split_folder(folder, split)
    paths = find_pictures(folder)
    if not paths:
        raise BasisError(f"{folder} holds no images; accepted: files ending in {', '.join(SUFFIXES)}")
    images: list[Tensor] = []
    for path in paths:
        picture = open_picture(path)
        if picture.mode == "F":
            image = to_channels(picture_bytes(picture, path), channels)
            if size is not None:
                from basis.data._pixels import resize

                image = resize(image[None], size)[0]
        else:
            if channels is not None:
                picture = picture.convert("L" if channels == 1 else "RGB")
            if size is not None and picture.size != (size, size):
                picture = square(picture, size)
            image = picture_bytes(picture, path)
        if images and image.shape[1:] != images[0].shape[1:]:
            raise BasisError(
                f"{path} is {_size(image)} pixels and {paths[0]} is {_size(images[0])}; "
                "give a size to crop and resize all to"
            )
        images.append(image)
    most = max(len(image) for image in images)
    stacked = torch.stack([to_channels(image, most) for image in images])

    parents = [path.relative_to(folder).parts[:-1] for path in paths]
    if not all(parents):
        return stacked, None, None
    classes = tuple(sorted({parts[0] for parts in parents}))
    labels = torch.tensor([classes.index(parts[0]) for parts in parents], dtype=torch.int64)
    return stacked, labels, classes


def split_folder(folder: Path, split: Split) -> Path:
    """The sub-folder of a split: `train`, or `test` else `val`; the folder itself where it has none of them."""
    present = [name for name in SPLITS if (folder / name).is_dir()]
    if not present:
        return folder
    for name in ("train",) if split == "train" else ("test", "val"):
        if name in present:
            return folder / name
    raise BasisError(f"{folder} has no {split} images: of train, val and test it holds {present[0]}")


def find_pictures(folder: Path) -> list[Path]:
    """Image files below a folder, sorted; hidden ones are left out."""
    found: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        # links to folders are common in data sets, and may lead in circles
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(here, name)
            for name in files
            if name.lower().endswith(SUFFIXES) and not name.startswith(".")
        ]
    return sorted(found)


def _size(image: Tensor) -> str:
    return f"{image.shape[-1]}x{image.shape[-2]}"
