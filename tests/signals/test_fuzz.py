"""Damaged files: whatever the bytes, a reader returns signals or raises a one-line error."""

import gzip
import io
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from basis.errors import BasisError
from basis.files import read_json
from basis.signals.datasets import load_images
from basis.signals.observation import read

pytestmark = pytest.mark.filterwarnings("ignore")
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)


def encoded(save, *args, **options):
    file = io.BytesIO()
    save(file, *args, **options)
    return file.getvalue()


def picture(kind, pixels=PIXELS):
    return encoded(Image.fromarray(pixels).save, kind)


IDX = struct.pack(">4B3I", 0, 0, 8, 3, 3, 9, 8) + PIXELS.tobytes()
BATCH = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}
FILES = {
    "a.png": picture("PNG"),
    "a.jpg": picture("JPEG"),
    "a.bmp": picture("BMP"),
    "a.gif": picture("GIF"),
    "a.webp": picture("WEBP"),
    "a.tif": picture("TIFF"),
    "a.ppm": picture("PPM"),
    "grey.png": encoded(Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 257).save, "PNG"),
    "a.npy": encoded(lambda file: np.save(file, PIXELS)),
    "m.npz": encoded(
        lambda file: np.savez(
            file,
            observation=np.zeros((1, 1, 3, 3)),
            sources=np.zeros((1, 2, 1, 3, 3)),
            alphas=np.ones(2),
        )
    ),
    "b.npz": encoded(lambda file: np.savez_compressed(file, images=PIXELS, labels=np.arange(1))),
    "x-images-idx3-ubyte": IDX,
    "x-images-idx3-ubyte.gz": gzip.compress(IDX),
    "cifar/test_batch": pickle.dumps(BATCH, protocol=2),
    "a.json": json.dumps({"a": [1, {"b": None}]}).encode(),
}
FILLERS = (
    b"\0",
    b"\xff",
    b"\xff" * 8,
    b"9",
    b"9" * 9,
    b"-",
    b"(",
    b"[" * 99,
    b"\x93NUMPY",
    b"\x80",
)

edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.one_of(st.sampled_from(FILLERS), st.binary(max_size=12)),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=5,
)


def damaged(data, changes, cut):
    """The bytes with some replaced, inserted or removed, and the end cut off."""
    changed = bytearray(data)
    for where, filler, removed in changes:
        # Squared, because the beginnings of files say how the rest is read.
        at = int(where**2 * len(changed))
        changed[at : at + removed] = filler
    return bytes(changed[: int(cut * len(changed))])


def readers(name):
    if name.endswith(".json"):
        return [lambda path: read_json(path, "a record")]
    if "/" in name:
        return [lambda path: load_images(path.parent, "test")]
    if "idx" in name or name == "b.npz":
        return [load_images]
    return [read] if name == "m.npz" else [load_images, read]


@pytest.mark.parametrize("name", FILES)
def test_a_good_file_is_read(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FILES[name])
    for reader in readers(name):
        reader(path)


@settings(max_examples=400, derandomize=True, deadline=None, database=None)
@given(
    name=st.sampled_from(sorted(FILES)),
    changes=edits,
    cut=st.one_of(st.just(1.0), st.just(1.0), st.floats(0, 1)),
)
@example(name="cifar/test_batch", changes=[(0.0, b"\x8d", 0)], cut=1.0)  # a string of 10^18 bytes
def test_damaged_files_are_read_or_rejected(tmp_path_factory, name, changes, cut):
    folder: Path = tmp_path_factory.getbasetemp() / "damaged"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(damaged(FILES[name], changes, cut))
    for reader in readers(name):
        message = ""
        try:
            reader(path)
        except BasisError as error:
            message = str(error)
        assert "\n" not in message and len(message) < 1000
