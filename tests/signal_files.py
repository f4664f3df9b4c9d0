"""Files as data sets and people have them, made for tests."""

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from basis.errors import BasisError


def refused(function, *args, **kwargs) -> str:
    """The message of the BasisError that the call must raise."""
    with pytest.raises(BasisError) as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def grey(rng, n, h=28, w=28):
    return rng.integers(0, 256, (n, h, w), dtype=np.uint8)


def idx(array) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def make_mnist(root: Path, rng, compressed=False) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    made = {}
    for split, prefix, n in (("train", "train", 7), ("test", "t10k", 3)):
        made[split] = grey(rng, n), rng.integers(0, 10, n, dtype=np.uint8)
        for part, array in zip(("images-idx3", "labels-idx1"), made[split], strict=True):
            name, data = f"{prefix}-{part}-ubyte", idx(array)
            if compressed:
                name, data = name + ".gz", gzip.compress(data)
            (folder / name).write_bytes(data)
    return made


def make_cifar(folder: Path, rng, n=2) -> dict[str, dict]:
    folder.mkdir(parents=True)
    batches = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batches[name] = {
            b"data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
            b"labels": rng.integers(0, 10, n).tolist(),
        }
        (folder / name).write_bytes(pickle.dumps(batches[name], protocol=2))
    return batches


def save(path: Path, pixels, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path, **options)
    return path


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)
