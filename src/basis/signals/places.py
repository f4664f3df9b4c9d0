"""Image sets, and where data sets are found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from basis.errors import BasisError


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


Split = Literal["train", "test"]
"""The halves of a set: what priors are trained on, and what they are measured on."""

NAMES = ("mnist", "cifar10", "sample", "sample-photos")
"""Sets that `load_images` knows by name; the last two ship with the package."""

MNIST_FOLDER = "MNIST/raw"
MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

CIFAR_FOLDER = "cifar-10-batches-py"
CIFAR_ARCHIVE = "cifar-10-python.tar.gz"
CIFAR_BATCHES = {
    "train": tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test": ("test_batch",),
}

SCENES_FOLDER = "scenes"

_LAYOUT = {
    "mnist": f"{MNIST_FOLDER}/train-images-idx3-ubyte and its three siblings (plain or .gz)",
    "cifar10": f"{CIFAR_FOLDER}/data_batch_1..5 and test_batch",
}


def data_root(root: str | Path | None = None) -> Path:
    """The folder that holds the data sets: `root`, else `$BASIS_DATA`, else `~/.cache/basis`."""
    if root is None:
        root = os.environ.get("BASIS_DATA") or "~/.cache/basis"
    return Path(os.path.expanduser(root))


def find_path(source: str | Path, root: str | Path | None = None) -> Path | None:
    """An existing file or folder: as given, else below the root; None where there is neither."""
    path = Path(os.path.expanduser(source))
    for candidate in (path, data_root(root) / path):
        # os.path.exists answers False where Path.exists raises (a name too long, a closed folder).
        if os.path.exists(candidate):
            return candidate
    return None


SAMPLES = {"sample": "mnist.npz", "sample-photos": "cifar10.npz"}
"""The sets that ship with the package, and their files."""


def sample_path(name: str = "sample") -> Path:
    return Path(str(resources.files("basis.signals").joinpath("sample", SAMPLES[name])))


def plain_or_gz(path: Path) -> Path | None:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if os.path.isfile(candidate):
            return candidate
    return None


def mnist_folder(folder: Path) -> Path | None:
    """`folder` or its `raw` sub-folder, whichever holds idx images under MNIST's names."""
    for candidate in (folder, folder / "raw"):
        if any(plain_or_gz(candidate / images) for images, _ in MNIST_FILES.values()):
            return candidate
    return None


def is_cifar_folder(folder: Path) -> bool:
    return any((folder / name).is_file() for names in CIFAR_BATCHES.values() for name in names)


def missing(name: str, path: Path) -> BasisError:
    """The error for a named set whose file `path` is not there."""
    return BasisError(
        f"{name}: there is no {path}; run `basis data download {name}`, "
        f"or set BASIS_DATA to a folder that holds {_LAYOUT[name]}"
    )


def check_split(split: str) -> None:
    if split not in ("train", "test"):
        raise BasisError(f"split {split!r} is unknown; accepted: train, test")
