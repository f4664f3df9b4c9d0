"""What data there is: found where, or got how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from basis.data._listing import SPLITS, find_pictures
from basis.data._places import (
    CIFAR_BATCHES,
    CIFAR_FOLDER,
    MNIST_FILES,
    MNIST_FOLDER,
    SCENES_FOLDER,
    data_root,
    plain_or_gz,
    sample_path,
)


@dataclass(frozen=True)
class CatalogueEntry:
    """One set that `load_images` knows by this name."""

    name: str
    about: str
    """one line that describes the images"""
    train: int
    """images in the training split"""
    test: int
    """images in the test split"""
    where: Path | None
    """folder or file it was found in, None if it is not there or not complete"""
    how: str
    """how to get it"""

    @property
    def found(self) -> bool:
        return self.where is not None

    @property
    def images(self) -> int:
        return self.train + self.test


def catalogue(root: str | Path | None = None) -> list[CatalogueEntry]:
    """The named sets, then the photo folders `scenes/<name>` found below the data root."""
    root = data_root(root)
    mnist, cifar = root / MNIST_FOLDER, root / CIFAR_FOLDER
    mnist_there = all(plain_or_gz(mnist / name) for names in MNIST_FILES.values() for name in names)
    cifar_there = all(
        (cifar / name).is_file() for names in CIFAR_BATCHES.values() for name in names
    )
    entries = [
        CatalogueEntry(
            "mnist",
            "handwritten digits, 28x28 grey, labels 0-9",
            60_000,
            10_000,
            mnist if mnist_there else None,
            "basis data download mnist (12 MB)",
        ),
        CatalogueEntry(
            "cifar10",
            "photos of 10 kinds of things, 32x32 colour, labelled",
            50_000,
            10_000,
            cifar if cifar_there else None,
            "basis data download cifar10 (170 MB)",
        ),
        CatalogueEntry(
            "sample",
            "first 512 digits of the MNIST test set, 28x28 grey, labels 0-9",
            0,
            512,
            sample_path(),
            "ships with the package",
        ),
        CatalogueEntry(
            "sample-photos",
            "first 128 photos of the CIFAR-10 test set, 32x32 colour, labelled",
            0,
            128,
            sample_path("sample-photos"),
            "ships with the package",
        ),
    ]
    return entries + _scenes(root)


def _scenes(root: Path) -> list[CatalogueEntry]:
    folder = root / SCENES_FOLDER
    if not folder.is_dir():
        return []
    entries = []
    for scene in sorted(folder.iterdir()):
        counts = {split: len(find_pictures(scene / split)) for split in SPLITS}
        if any(counts.values()):
            entries.append(
                CatalogueEntry(
                    f"{SCENES_FOLDER}/{scene.name}",
                    f"photos in a folder ({scene.name}); load with a size",
                    counts["train"],
                    counts["test"] or counts["val"],
                    scene,
                    f"photos of your own in {scene}/train and {scene}/val",
                )
            )
    return entries
