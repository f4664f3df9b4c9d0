"""Files that are larger or other than they look, and pickles that want to run code."""

import gzip
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from signal_files import refused

from basis.signals.datasets import load_images
from basis.signals.observation import read

POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and descriptors")


class Crafted:
    """Pickles as an array whose state contains a type with flags and addresses of its own."""

    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return (np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), self.state)


class CraftedType:
    def __init__(self, kind, flags):
        self.kind, self.flags = kind, flags

    def __reduce__(self):
        # Version 4 of a dtype's state, with flags that say "these are objects".
        state = (4, "|", None, None, None, 8, 8, self.flags, {})
        return (np.dtype, (self.kind, False, True), state)


@pytest.mark.parametrize(
    ("kind", "flags", "shape"),
    [
        ("V8", 63, (1, 3072)),
        ("O8", 61, (1,)),  # bytes that NumPy would take for the address of an object
    ],
)
def test_numpy_restores_nothing_from_a_batch(tmp_path, kind, flags, shape):
    data = b"\x42" * 8 * int(np.prod(shape))
    state = (1, shape, CraftedType(kind, flags), False, data)
    batch = {b"data": Crafted(state), b"labels": [0]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    assert "`data` must be uint8" in refused(load_images, tmp_path, "test")


def test_batches_are_read_under_either_name_of_numpy(tmp_path):
    pixels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    for protocol in (2, 4):
        text = pickle.dumps({b"data": pixels, b"labels": [3, 4]}, protocol=protocol)
        for name in (text, text.replace(b"numpy._core.", b"numpy.core.")):
            if protocol == 4 and name is not text:
                continue  # its strings have lengths
            (tmp_path / "test_batch").write_bytes(name)
            found = load_images(tmp_path, "test")
            assert np.array_equal(found.images.numpy().reshape(2, 3072), pixels)
            assert found.labels.tolist() == [3, 4]


def test_a_memo_beyond_the_file_is_rejected(tmp_path):
    (tmp_path / "test_batch").write_bytes(b"\x80\x02}r\xff\xff\xff\x7f.")
    assert "memo" in refused(load_images, tmp_path, "test")


def header(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    text = text + " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    "shape", ["(99999999999, 1, 28, 28)", "(-1, 28, 28)", "(1" + "0" * 30 + ",)"]
)
def test_arrays_that_announce_more_than_they_contain(tmp_path, shape):
    (tmp_path / "a.npy").write_bytes(header(shape) + bytes(100))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", header(shape) + bytes(100))
    for name in ("a.npy", "a.npz"):
        assert name in refused(load_images, tmp_path / name)
        assert name in refused(read, tmp_path / name)


def test_compressed_arrays_are_inspected_before_they_are_decompressed(tmp_path, monkeypatch):
    path = tmp_path / "x-images-idx3-ubyte.gz"
    start = bytes([0, 0, 8, 3]) + struct.pack(">III", 10**6, 28, 28)
    path.write_bytes(gzip.compress(start + bytes(100)))
    assert "announces 784000000 bytes" in refused(load_images, path)
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((100, 28, 28), "uint8"))
    assert len(load_images(tmp_path / "a.npz")) == 100
    monkeypatch.setattr("basis.files.memory_left", lambda: 100_000)
    assert "of memory are left" in refused(load_images, tmp_path / "a.npz")


def test_files_of_many_arrays_are_not_listed_completely(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for i in range(3000):
            archive.writestr(f"{i:04d}" + "x" * 60, b"no array")
    message = refused(read, tmp_path / "a.npz")
    assert "2,992 more" in message and len(message) < 1000
    np.savez(tmp_path / "b.npz", **{f"n{i}": np.zeros(1) for i in range(20)})
    assert "12 more" in refused(read, tmp_path / "b.npz")


def test_postscript_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **s: pytest.fail("was run"))
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n%%EndComments\n%%EOF\n"
    (tmp_path / "a.png").write_text(text)
    assert "accepted: png" in refused(read, tmp_path / "a.png")


def test_huge_pictures_are_rejected_before_they_are_decoded(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    Image.new("1", (5001, 5000)).save(path)
    with monkeypatch.context() as patched:
        patched.setattr("basis.signals.pictures.plain_mode", lambda *a: pytest.fail("decoded"))
        assert "5001x5000 pixels; at most 24 megapixels" in refused(read, path)
    assert read(path, size=28).values.shape == (1, 28, 28)


@POSIX
def test_broken_tiffs_do_not_write_to_the_terminal(tmp_path, capfd):
    path = tmp_path / "a.tif"
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64), "uint8")
    Image.fromarray(pixels).save(path, compression="tiff_lzw")
    data = bytearray(path.read_bytes())
    data[8:200] = b"\xff" * 192
    path.write_bytes(data)
    assert "a.tif" in refused(read, path)
    os.write(2, b"what follows\n")
    assert capfd.readouterr().err == "what follows\n"


@POSIX
def test_pipes_are_not_waited_for(tmp_path):
    for name in ("data", "a.npy", "a.png", "x-images-idx3-ubyte"):
        os.mkfifo(tmp_path / name)
        assert name in refused(load_images, tmp_path / name)
        assert name in refused(read, tmp_path / name)
    (tmp_path / "mnist").mkdir()
    os.mkfifo(tmp_path / "mnist" / "test_batch")
    refused(load_images, tmp_path / "mnist", "test")


def test_a_cut_lmdb_is_rejected(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    folder = tmp_path / "church_lmdb"
    with (
        lmdb.open(str(folder), map_size=1 << 24) as environment,
        environment.begin(write=True) as transaction,
    ):
        for i in range(40):
            data = io.BytesIO()
            Image.fromarray(np.full((64, 64, 3), i, "uint8")).save(data, "BMP")
            transaction.put(f"{i:04d}".encode(), data.getvalue())
    assert len(load_images(folder)) == 40
    file = folder / "data.mdb"
    with open(file, "r+b") as opened:
        opened.truncate(file.stat().st_size // 2)
    assert "is cut short" in refused(load_images, folder)
