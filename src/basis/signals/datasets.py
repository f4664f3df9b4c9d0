"""Data sets by name or path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from basis.errors import BasisError
from basis.signals.arrays import (
    NUMPY,
    as_batch,
    as_bytes,
    as_floats,
    check_channels,
    check_size,
    load_arrays,
    pick,
    picture_pixels,
    resize,
    to_channels,
)
from basis.signals.formats import (
    CLASSES,
    is_idx,
    is_lmdb,
    labels_beside,
    read_cifar,
    read_idx,
    read_lmdb,
)
from basis.signals.pictures import PICTURES, SPLITS, find_pictures, open_bytes, read_folder
from basis.signals.places import (
    CIFAR_BATCHES,
    CIFAR_FOLDER,
    MNIST_FILES,
    MNIST_FOLDER,
    NAMES,
    SCENES_FOLDER,
    ImageSet,
    Split,
    check_split,
    data_root,
    find_path,
    is_cifar_folder,
    missing,
    mnist_folder,
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


DIGITS = tuple("0123456789")


def load_images(
    source: str | Path,
    split: Split = "train",
    *,
    root: str | Path | None = None,
    size: int | None = None,
    channels: int | None = None,
) -> ImageSet:
    """An image set by name or from a file or folder.

    Names (as plain text; a folder of such a name is reached as `./mnist`):

    - `mnist`, `cifar10`: below the data root (`root`, else `$BASIS_DATA`, else `~/.cache/basis`);
    - `sample`, `sample-photos`: 512 MNIST test digits and 128 CIFAR-10 test photos that ship with
      the package, the same for both splits.

    Paths, looked up in the working folder and then below the data root:

    - an idx file, plain or gzip (labels are taken from the file beside it), or a folder of
      MNIST's idx files;
    - a folder of CIFAR-10 batches;
    - a folder of pictures, at any depth: first-level sub-folders are classes, and where the folder
      has `train`, `val` or `test` in it, `split` picks (`test` falls back to `val`);
    - an LSUN lmdb (`church_outdoor_train_lmdb`), whose values are encoded pictures;
    - one picture;
    - what `basis separate`, `basis colorize` or `basis sample` left in a folder, without its
      panels;
    - an .npy, or an .npz with `images` and, if there are any, `labels`, or with `sources`: uint8,
      or floats in [0, 1] rounded to bytes. (h, w) is one grey image; (c, h, w) and (h, w, c) one
      image and (n, c, h, w) and (n, h, w, c) several, with c 1 or 3; any other (n, h, w) several
      grey ones;
    - signals of another kind in an .npy or .npz, floats of any range that stay as they are:
      (n, 1, length) and (n, 2, length), five or more axes (n, channels, *size), and in an .npz
      any (n, channels, *size) under the name `signals`.

    `split` matters only where the source has splits. With `size`, pictures are cropped to their
    central square and resized with antialiasing; without it, they must agree in size. `channels` 1
    or 3 converts pictures between grey and colour.
    """
    check_split(split)
    check_size(size)
    check_channels(channels)
    if isinstance(source, str) and source in NAMES:
        found = _load_named(source, split, data_root(root))
    else:
        path = find_path(source, root) if str(source) else None
        if path is None:
            raise _not_found(source, root)
        found = _load_path(path, split, size, channels)
    if channels is None and size is None:
        return found
    if found.images.dtype != torch.uint8 or found.images.ndim != 4:
        raise BasisError(
            f"{found.name} holds signals of shape {tuple(found.images.shape[1:])}; "
            "a size or channels can be given for pictures only"
        )
    images = resize(to_channels(found.images, channels), size)
    return ImageSet(images, found.labels, found.name, found.source, found.classes)


def _load_named(name: str, split: Split, root: Path) -> ImageSet:
    if name == "mnist":
        return _load_mnist(root / MNIST_FOLDER, split)
    if name == "cifar10":
        return _load_cifar(root / CIFAR_FOLDER, split)
    arrays = load_arrays(sample_path(name))
    images, labels = arrays["images"], arrays["labels"]
    if name == "sample-photos":
        about = "first 128 photos of the CIFAR-10 test set, shipped with the package"
        return _image_set(images, labels, name, about, CLASSES)
    about = "first 512 digits of the MNIST test set, shipped with the package"
    return _image_set(images[:, None], labels, name, about, DIGITS)


def _load_path(path: Path, split: Split, size: int | None, channels: int | None) -> ImageSet:
    name = path.name or path.resolve().name
    suffix = path.suffix.lower()
    if path.is_dir():
        if is_cifar_folder(path):
            return _load_cifar(path, split)
        if folder := mnist_folder(path):
            return _load_mnist(folder, split)
        if is_lmdb(path):
            images = read_lmdb(path, size=size, channels=channels)
            return ImageSet(images, None, name, f"pictures of the lmdb {path}")
        if (path / "samples.npy").is_file() and (path / "run.json").is_file():
            return _load_array(path / "samples.npy")
        images, labels, classes = read_folder(path, split, size=size, channels=channels)
        return ImageSet(images, labels, name, f"{split} pictures in {path}", classes)
    if suffix in NUMPY:
        return _load_array(path)
    if suffix in PICTURES:
        image = picture_pixels(open_bytes(path))
        return ImageSet(torch.from_numpy(image)[None], None, path.stem, f"picture {path}")
    if is_idx(path):
        beside = labels_beside(path)
        return _image_set(
            read_idx(path, 3)[:, None],
            None if beside is None else read_idx(beside, 1),
            name,
            f"idx file {path}",
        )
    raise BasisError(
        f"{path} is not an image file that is known; accepted: {', '.join(PICTURES)}, "
        ".npy, .npz, an idx file (plain or .gz), or a folder of images"
    )


def _load_mnist(folder: Path, split: Split) -> ImageSet:
    found = []
    for name in MNIST_FILES[split]:
        path = plain_or_gz(folder / name)
        if path is None:
            raise missing("mnist", folder / name)
        found.append(path)
    images, labels = read_idx(found[0], 3)[:, None], read_idx(found[1], 1)
    return _image_set(images, labels, "mnist", f"MNIST {split} set in {folder}", DIGITS)


def _load_cifar(folder: Path, split: Split) -> ImageSet:
    images, labels = read_cifar(folder, split)
    return _image_set(images, labels, "cifar10", f"CIFAR-10 {split} set in {folder}", CLASSES)


def _load_array(path: Path) -> ImageSet:
    arrays = load_arrays(path)
    sources = arrays.get("sources")  # of several mixtures, as `basis separate` writes them
    if "images" not in arrays and sources is not None and sources.ndim == 5:
        arrays["images"] = sources.reshape(-1, *sources.shape[2:])
    about = f"NumPy file {path}"
    if "signals" in arrays:
        signals = arrays["signals"]
        if signals.ndim < 3 or 0 in signals.shape:
            raise BasisError(
                f"{path} holds signals of shape {signals.shape}; (n, channels, *size) is accepted"
            )
        floats = as_floats(signals, path).numpy()
        return _image_set(floats, arrays.get("labels"), path.stem, about)
    array = as_batch(pick(arrays, ("images",), path), path)
    is_signal = array.ndim != 4 and array.dtype != np.uint8
    values = as_floats(array, path).numpy() if is_signal else as_bytes(array, path)
    return _image_set(values, arrays.get("labels"), path.stem, about)


def _image_set(
    images: np.ndarray,
    labels: np.ndarray | None,
    name: str,
    source: str,
    classes: tuple[str, ...] | None = None,
) -> ImageSet:
    if labels is not None:
        if not np.issubdtype(labels.dtype, np.integer):
            raise BasisError(f"{name}: labels are {labels.dtype}; whole numbers are accepted")
        if labels.shape != images.shape[:1]:
            raise BasisError(
                f"{name}: labels of shape {labels.shape} do not fit {len(images)} images; "
                "one for each is needed"
            )
        labels = labels.astype(np.int64)
    return ImageSet(
        torch.from_numpy(images),
        None if labels is None else torch.from_numpy(labels),
        name,
        source,
        classes,
    )


def _not_found(source: str | Path, root: str | Path | None) -> BasisError:
    path = Path(source)
    if isinstance(source, Path) or len(path.parts) != 1 or path.suffix or source.startswith("~"):
        below = "" if path.is_absolute() else f", here or in {data_root(root)}"
        return BasisError(
            f"there is no file or folder {str(source)!r}{below}; "
            f"the named sets are {', '.join(NAMES)}"
        )
    return BasisError(
        f"unknown data set {source!r}; accepted: {', '.join(NAMES)}, "
        "or the path of a file or folder of images"
    )
