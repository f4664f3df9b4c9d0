"""The CIFAR-10 batches: Python pickles, read without running what a pickle may ask to run."""

from __future__ import annotations

import codecs
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from basis._errors import BasisError
from basis.data._places import CIFAR_BATCHES, Split, missing

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

# All that an array needs, under the names of either NumPy. Taken from an array itself, because
# the module that holds the function was renamed.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


def read_cifar(folder: Path, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of a folder of CIFAR-10 batches."""
    parts = []
    for name in CIFAR_BATCHES[split]:
        if not (folder / name).is_file():
            raise missing("cifar10", folder / name)
        parts.append(read_batch(folder / name))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of one batch file."""
    try:
        with open(path, "rb") as file:
            batch = _ArraysOnly(file, path).load()
    except BasisError:
        raise
    except Exception as error:  # a broken pickle raises anything
        raise BasisError(
            f"{path} cannot be read as a CIFAR-10 batch ({type(error).__name__}); fetch it again"
        ) from error
    if not isinstance(batch, dict):
        raise BasisError(f"{path} is not a CIFAR-10 batch: it holds no dictionary")
    data = batch.get(b"data", batch.get("data"))
    labels = batch.get(b"labels", batch.get("labels"))
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != 3 * 32 * 32
    ):
        raise BasisError(f"{path} is not a CIFAR-10 batch: `data` must be uint8 of shape (n, 3072)")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise BasisError(
            f"{path} is not a CIFAR-10 batch: `labels` must be a list of {len(data)} numbers "
            "from 0 to 9"
        )
    return data.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


class _ArraysOnly(pickle.Unpickler):
    def __init__(self, file: BinaryIO, path: Path) -> None:
        super().__init__(file, encoding="bytes")  # the batches were written by Python 2
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise BasisError(
                f"{self.path} asks for {f'{module}.{name}'!r}, which is refused: "
                "a CIFAR-10 batch holds only NumPy arrays, lists, text and numbers"
            ) from None
