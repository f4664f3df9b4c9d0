"""Where data is: the root folder, and the layout of each named set below it."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Literal

from basis._errors import BasisError

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
    return Path(str(resources.files("basis.data").joinpath("sample", SAMPLES[name])))


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
