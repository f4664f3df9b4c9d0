"""Data sets by name or path: the registry of named sets, loading, downloading and listing."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError, did_you_mean
from basis.files import data_root, find_path, whole_file
from basis.signals.arrays import CHANNELS, as_bytes, as_floats, as_tensor, to_batch, to_channels
from basis.signals.download import RemoteFile, checksum, download_file, unpack
from basis.signals.formats import (
    find_labels,
    is_idx,
    is_lmdb,
    plain_or_gz,
    read_cifar_batch,
    read_idx,
    read_lmdb,
)
from basis.signals.image_set import ImageSet, Split
from basis.signals.numpy_files import NUMPY, load_arrays, pick
from basis.signals.pictures import (
    PICTURES,
    SPLITS,
    find_pictures,
    open_8_bit,
    picture_tensor,
    read_folder,
    squares,
)

_SCENES = "scenes"  # the folder of photos below the data root
_DIGITS = tuple("0123456789")
_THINGS = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """A data set that `load_images` knows by name.

    Attributes:
        name: The name.
        about: One line that describes the images.
        counts: The number of images of the train and test split.
        folder: Its folder below the data root, or in the package if it ships with it.
        files: The files of the train and test split in this folder, plain or .gz.
        load: Reads it from its folder.
        remote: The published files; one archive or one .gz for each file.
    """

    name: str
    about: str
    counts: tuple[int, int]
    folder: str
    files: tuple[tuple[str, ...], tuple[str, ...]]
    load: Callable[[Path, Split], ImageSet]
    remote: tuple[RemoteFile, ...] = ()

    @property
    def how(self) -> str:
        """How to get it."""
        return f"basis lab data download {self.name}" if self.remote else "ships with the package"

    def path(self, root: str | Path | None = None) -> Path:
        """The folder of the set, which need not exist."""
        if not self.remote:
            return Path(str(resources.files("basis.signals").joinpath(self.folder)))
        return data_root(root) / self.folder

    def missing(self, root: str | Path | None = None) -> list[str]:
        """The names of files that are not there."""
        names = [name for names in self.files for name in names]
        return [name for name in names if plain_or_gz(self.path(root) / name) is None]


@dataclass(frozen=True)
class DatasetInfo:
    """A data set as `list_datasets` describes it."""

    name: str
    about: str
    train: int
    """images of the training split"""
    test: int
    """images of the test split"""
    where: Path | None
    """folder it was found in; None if it is not there or incomplete"""
    how: str
    """how to get it"""


def load_images(
    source: str | Path,
    split: Split = "train",
    *,
    root: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
) -> ImageSet:
    """An image set by name or from a file or folder.

    Names (as plain text; a folder of such a name is given as `./mnist`):

    - `mnist`, `cifar10`: below the data root (`root`, else `$BASIS_DATA`, else `~/.cache/basis`);
    - `sample`, `sample-photos`: 512 MNIST test digits and 128 CIFAR-10 test photos that ship with
      the package, the same for both splits.

    Paths, relative to the working folder, else to the data root:

    - an idx file, plain or gzip (labels are taken from the file next to it), or a folder of
      MNIST's idx files;
    - a folder of CIFAR-10 batches;
    - a folder of pictures, at any depth: first-level sub-folders are classes, and if the folder
      contains `train`, `val` or `test`, `split` selects (`test`, else `val`);
    - an LSUN lmdb (`church_outdoor_train_lmdb`), whose values are encoded pictures;
    - one picture;
    - what `basis separate`, `basis colorize` or `basis sample` wrote to a folder, without panels;
    - an .npy, or an .npz with `images` and optional `labels`, or with `sources`: uint8, or floats
      in [0, 1] rounded to bytes, with the axes of `basis.signals.to_batch`;
    - signals of another kind in an .npy or .npz, floats of any range: (n, 1, length) and
      (n, 2, length), five or more axes (n, channels, *size), and in an .npz any
      (n, channels, *size) under the name `signals`.

    With `size`, pictures are cropped to their central square and resized with antialiasing; without
    it they must agree in size. `channels` 1 or 3 converts pictures to grey or color.
    """
    if split not in get_args(Split):
        raise BasisError(f"split must be one of {', '.join(get_args(Split))}, not {split!r}")
    if size is not None and (type(size) is not int or size < 1):
        raise BasisError(f"size must be a whole number of pixels of at least 1, not {size!r}")
    if channels not in (None, *CHANNELS):
        raise BasisError(f"channels must be 1 (grey) or 3 (color), not {channels!r}")
    if isinstance(source, str) and source in DATASETS:
        dataset = DATASETS[source]
        found = dataset.load(dataset.path(root), split)
    else:
        path = find_path(source, root) if str(source) else None
        if path is None:
            raise _not_found(source, root)
        found = _load_path(path, split, size, channels)
    if channels is None and size is None:
        return found
    if found.images.dtype != torch.uint8 or found.images.ndim != 4:
        raise BasisError(
            f"{found.name} contains signals of shape {tuple(found.images.shape[1:])}; "
            "size and channels are for pictures only"
        )
    images = to_channels(found.images, channels)
    images = images if size is None else squares(images, size)
    return ImageSet(images, found.labels, found.name, found.source, found.classes)


def list_datasets(root: str | Path | None = None) -> list[DatasetInfo]:
    """The named sets, then the photo folders `scenes/<name>` below the data root."""
    found = []
    for dataset in DATASETS.values():
        where = None if dataset.missing(root) else dataset.path(root)
        found.append(DatasetInfo(dataset.name, dataset.about, *dataset.counts, where, dataset.how))
    folder = data_root(root) / _SCENES
    for scene in sorted(folder.iterdir()) if folder.is_dir() else ():
        counts = {split: len(find_pictures(scene / split)) for split in SPLITS}
        if any(counts.values()):
            about = f"photos in a folder ({scene.name}); load with a size"
            how = f"your own photos in {scene}/train and {scene}/val"
            test = counts["test"] or counts["val"]
            name = f"{_SCENES}/{scene.name}"
            found.append(DatasetInfo(name, about, counts["train"], test, scene, how))
    return found


def download(
    name: str,
    root: str | Path | None = None,
    progress: bool = True,
    *,
    timeout: float = 30.0,
    remote: tuple[RemoteFile, ...] | None = None,
) -> Path:
    """Downloads a named set into the data root and returns the folder that contains it.

    Files that exist are left alone, so that an interrupted download continues with the next file. A
    file is put in place only if its checksum is right. An archive in the root is unpacked without
    the network.

    Args:
        name: The name, such as "mnist".
        root: The data root.
        progress: Whether to show progress bars.
        timeout: Seconds without an answer after which the next mirror is tried.
        remote: Where to download from, instead of the publishers.
    """
    if name not in DATASETS:
        raise BasisError(f"{name!r} cannot be downloaded; accepted: {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    files = dataset.remote if remote is None else remote
    folder, missing = dataset.path(root), dataset.missing(root)
    if not missing or not dataset.remote:
        return folder
    if len(files) == 1:
        _download_archive(data_root(root), folder, files[0], missing, progress, timeout)
        return folder
    for file in files:
        if file.name.removesuffix(".gz") in missing:
            with whole_file(folder / file.name) as temporary:
                download_file(file, temporary, folder / file.name, "", progress, timeout)
    return folder


def _download_archive(
    root: Path, folder: Path, file: RemoteFile, names: list[str], progress: bool, timeout: float
) -> None:
    """Puts these files of an archive into a folder."""
    archive = root / file.name
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=root, prefix=".download-")
    except OSError as error:
        raise BasisError(
            f"cannot write {root}: {error.strerror}; name a folder that can be written"
        ) from error
    with temporary as work:
        found = checksum(archive, file) if archive.is_file() else ""
        if found != file.checksum:
            wrong = f"; {archive} has MD5 {found}, not {file.checksum}" if found else ""
            fetched = Path(work, file.name)
            download_file(file, fetched, archive, wrong, progress, timeout)
            archive = fetched
        unpack(archive, Path(work), folder.name, names)
        folder.mkdir(exist_ok=True)
        for name in names:
            os.replace(Path(work, name), folder / name)


def _load_path(path: Path, split: Split, size: int | None, channels: int | None) -> ImageSet:
    name = path.name or path.resolve().name
    if path.is_dir():
        if any((path / file).is_file() for files in _CIFAR.files for file in files):
            return _load_cifar(path, split)
        for folder in (path, path / "raw"):
            if any(plain_or_gz(folder / images) for images, _ in _MNIST.files):
                return _load_mnist(folder, split)
        if is_lmdb(path):
            images = read_lmdb(path, size=size, channels=channels)
            return ImageSet(images, None, name, f"pictures of the lmdb {path}")
        if (path / "samples.npy").is_file() and (path / "run.json").is_file():
            return _load_arrays(path / "samples.npy")
        images, labels, classes = read_folder(path, split, size=size, channels=channels)
        return ImageSet(images, labels, name, f"{split} pictures in {path}", classes)
    if path.suffix.lower() in NUMPY:
        return _load_arrays(path)
    if path.suffix.lower() in PICTURES:
        image = picture_tensor(open_8_bit(path)).contiguous()
        return ImageSet(image[None], None, path.stem, f"picture {path}")
    if is_idx(path):
        images = torch.from_numpy(read_idx(path, 3))[:, None]
        labels_file = find_labels(path)
        labels = (
            None if labels_file is None else _labels(read_idx(labels_file, 1), len(images), name)
        )
        return ImageSet(images, labels, name, f"idx file {path}")
    raise BasisError(
        f"{path} is not an image file that can be read; accepted: {', '.join(PICTURES)}, "
        ".npy, .npz, an idx file (plain or .gz), or a folder of images"
    )


def _load_mnist(folder: Path, split: Split) -> ImageSet:
    images, labels = (
        read_idx(_existing(_MNIST, folder, name), axes)
        for name, axes in zip(_MNIST.files[split == "test"], (3, 1), strict=True)
    )
    found = torch.from_numpy(images)[:, None]
    about = f"MNIST {split} set in {folder}"
    return ImageSet(found, _labels(labels, len(found), "mnist"), "mnist", about, _DIGITS)


def _load_cifar(folder: Path, split: Split) -> ImageSet:
    names = _CIFAR.files[split == "test"]
    parts = [read_cifar_batch(_existing(_CIFAR, folder, name)) for name in names]
    images, labels = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    return ImageSet(images, labels, "cifar10", f"CIFAR-10 {split} set in {folder}", _THINGS)


def _load_sample(path: Path, split: Split) -> ImageSet:
    found, about = _load_arrays(path / "mnist.npz"), "first 512 digits of the MNIST test set"
    return ImageSet(found.images, found.labels, "sample", f"{about}, shipped here", _DIGITS)


def _load_sample_photos(path: Path, split: Split) -> ImageSet:
    found, about = _load_arrays(path / "cifar10.npz"), "first 128 photos of the CIFAR-10 test set"
    return ImageSet(found.images, found.labels, "sample-photos", f"{about}, shipped here", _THINGS)


def _load_arrays(path: Path) -> ImageSet:
    """The images, or other signals, of a NumPy file."""
    arrays = load_arrays(path)
    sources = arrays.get("sources")  # of several mixtures, as `basis separate` writes them
    if "images" not in arrays and sources is not None and sources.ndim == 5:
        arrays["images"] = sources.reshape(-1, *sources.shape[2:])
    if "signals" in arrays:
        values = as_tensor(arrays["signals"], path)
        if values.ndim < 3 or not values.numel():
            raise BasisError(
                f"{path} contains signals of shape {tuple(values.shape)}; (n, channels, *size) is "
                "accepted"
            )
        images = as_floats(values, path)
    else:
        images = to_batch(as_tensor(pick(arrays, ("images",), path), path), path)
        if images.ndim == 4 and images.shape[1] not in CHANNELS:
            raise BasisError(
                f"{path} contains pictures of {images.shape[1]} channels; 1 or 3 are accepted"
            )
        is_signal = images.ndim != 4 and images.is_floating_point()
        images = as_floats(images, path) if is_signal else as_bytes(images, path)
    labels = arrays.get("labels")
    checked = None if labels is None else _labels(labels, len(images), path.stem)
    return ImageSet(images, checked, path.stem, f"NumPy file {path}")


def _labels(labels: np.ndarray, count: int, name: str) -> torch.Tensor:
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (count,):
        raise BasisError(
            f"{name}: labels are {labels.dtype} of shape {labels.shape}; one whole number for each "
            f"of the {count} images is accepted"
        )
    return torch.from_numpy(labels.astype(np.int64))


def _existing(dataset: Dataset, folder: Path, name: str) -> Path:
    path = plain_or_gz(folder / name)
    if path is None:
        raise BasisError(
            f"{dataset.name}: there is no {folder / name}; run `{dataset.how}`, "
            f"or set BASIS_DATA to a folder that contains {dataset.folder}"
        )
    return path


def _not_found(source: str | Path, root: str | Path | None) -> BasisError:
    path = Path(source)
    if isinstance(source, Path) or len(path.parts) != 1 or path.suffix or source.startswith("~"):
        below = "" if path.is_absolute() else f", here or in {data_root(root)}"
        return BasisError(
            f"there is no file or folder {str(source)!r}{below}; "
            f"the named sets are {', '.join(DATASETS)}"
        )
    return BasisError(
        f"unknown data set {source!r}; accepted: {', '.join(DATASETS)}, "
        f"or the path of a file or folder of images{did_you_mean(source, DATASETS)}"
    )


# The registry.

DATASETS: dict[str, Dataset] = {}
"""The sets that `load_images` knows by name."""


def register(dataset: Dataset) -> Dataset:
    """Adds a data set to the registry."""
    DATASETS[dataset.name] = dataset
    return dataset


def _mnist_file(name: str, md5: str) -> RemoteFile:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return RemoteFile(name, md5, tuple(mirror + name for mirror in mirrors))


_MNIST = register(
    Dataset(
        "mnist",
        "handwritten digits, 28x28 grey, labels 0-9",
        (60_000, 10_000),
        "MNIST/raw",
        (
            ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        ),
        _load_mnist,
        (
            _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    )
)
_CIFAR = register(
    Dataset(
        "cifar10",
        "photos of 10 kinds of things, 32x32 color, labels",
        (50_000, 10_000),
        "cifar-10-batches-py",
        (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)),
        _load_cifar,
        (
            RemoteFile(
                "cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            ),
        ),
    )
)
register(
    Dataset(
        "sample",
        "first 512 digits of the MNIST test set, 28x28 grey, labels 0-9",
        (0, 512),
        "sample",
        ((), ("mnist.npz",)),
        _load_sample,
    )
)
register(
    Dataset(
        "sample-photos",
        "first 128 photos of the CIFAR-10 test set, 32x32 color, labels",
        (0, 128),
        "sample",
        ((), ("cifar10.npz",)),
        _load_sample_photos,
    )
)


_REFERENCE = re.compile(r"(?P<name>[a-z][a-z0-9-]*):(?P<index>\d+)")


def load_image(reference: str, root: str | Path | None = None) -> Tensor | None:
    """The test image that "sample:3" names, (channels, *size); None for any other text.

    An existing file of this name comes first.
    """
    found = _REFERENCE.fullmatch(reference)
    if found is None or os.path.exists(reference):
        return None
    images = load_images(found["name"], "test", root=root)
    index = int(found["index"])
    if index >= len(images):
        raise BasisError(f"{reference}: {found['name']} has test images 0 to {len(images) - 1}")
    return images[index]
