"""Data sets: every accepted layout gives the same bytes, everything else is one line of error."""

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from signal_files import Touch, grey, idx, make_cifar, make_mnist, refused, save

from basis.errors import BasisError
from basis.files import data_root
from basis.signals.datasets import list_datasets, load_images
from basis.signals.image_set import ImageSet
from basis.signals.observation import as_observation, read


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Each test works in an empty folder, so that nothing relative is found by chance."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


def test_data_root_prefers_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BASIS_DATA", str(tmp_path))
    assert data_root("elsewhere") == Path("elsewhere")
    assert data_root() == tmp_path
    monkeypatch.setenv("BASIS_DATA", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_root() == tmp_path / "home" / ".cache" / "basis"
    assert data_root("~/x") == tmp_path / "home" / "x"


def image_set(labels=(3, 1, 3, 0), classes=None):
    images = torch.arange(4, dtype=torch.uint8).mul(85).view(4, 1, 1, 1)
    return ImageSet(images, torch.tensor(labels), "made", "a test", classes)


def test_only_keeps_order_and_labels():
    chosen = image_set().only([3, 0])
    assert chosen.images.flatten().tolist() == [0, 170, 255]
    assert chosen.labels.tolist() == [3, 3, 0]
    assert len(chosen) == 3


def test_only_refuses_what_is_not_there():
    assert "[0, 1, 3]" in refused(image_set().only, [3, 7])
    known = image_set(classes=tuple("0123"))
    assert len(known.only([1, 2])) == 1  # a class may be absent
    assert "[2]" in refused(known.only, [2])
    assert "[4]" in refused(known.only, [1, 4])
    assert "no labels" in refused(ImageSet(known.images, None, "made", "a test").only, [1])


def test_floats_are_in_the_unit_interval():
    made = image_set()
    assert torch.allclose(made.floats().flatten(), torch.tensor([0, 1 / 3, 2 / 3, 1]))
    assert torch.equal(made.floats([2, 0]), made.floats()[[2, 0]])
    assert torch.equal(made.floats(torch.tensor([True, False, False, True])), made.floats()[[0, 3]])
    assert made.floats(slice(1, 2)).shape == (1, 1, 1, 1)
    assert made.images.dtype == torch.uint8
    assert made.floats().dtype == torch.float32


def test_an_image_set_refuses_other_types():
    for other in (torch.zeros(2, 1, 3, 3).long(), torch.zeros(2, 3).byte(), torch.zeros(2, 3)):
        assert "uint8 or float32" in refused(ImageSet, other, None, "made", "a test")
    bytes_ = torch.zeros(2, 1, 3, 3, dtype=torch.uint8)
    assert "int64" in refused(ImageSet, bytes_, torch.zeros(3, dtype=torch.int64), "made", "a test")


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_layout(tmp_path, rng, compressed):
    made = make_mnist(tmp_path, rng, compressed)
    for split in ("train", "test"):
        found = load_images("mnist", split, root=tmp_path)
        assert np.array_equal(found.images[:, 0].numpy(), made[split][0])
        assert found.labels.tolist() == made[split][1].tolist()
        assert found.labels.dtype == torch.int64
        assert (found.name, found.classes) == ("mnist", tuple("0123456789"))
        assert split in found.source
        assert "\n" not in found.source


def test_mnist_by_path(tmp_path, rng):
    images, labels = make_mnist(tmp_path, rng)["test"]
    raw = tmp_path / "MNIST" / "raw"
    for source in (raw, raw.parent, raw / "t10k-images-idx3-ubyte"):
        found = load_images(source, "test")
        assert np.array_equal(found.images[:, 0].numpy(), images)
        assert found.labels.tolist() == labels.tolist()
    (raw / "t10k-labels-idx1-ubyte").unlink()
    assert load_images(raw / "t10k-images-idx3-ubyte").labels is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "MNIST/raw/t10k-labels-idx1-ubyte"),
        ("cifar10", "cifar-10-batches-py/test_batch"),
    ],
)
def test_a_missing_set_says_how_to_get_it(tmp_path, monkeypatch, rng, name, file):
    monkeypatch.setenv("BASIS_DATA", str(tmp_path))
    message = refused(load_images, name)
    for part in (f"basis lab data download {name}", "BASIS_DATA", str(tmp_path / file[:5])):
        assert part in message
    make_mnist(tmp_path, rng)
    make_cifar(tmp_path / "cifar-10-batches-py", rng)
    (tmp_path / file).unlink()
    assert load_images(name).images.ndim == 4
    assert file in refused(load_images, name, "test")


@pytest.mark.parametrize("name", ["made-images-idx3-ubyte", "made-images-idx3-ubyte.gz"])
@pytest.mark.parametrize("change", [-1, +1])
def test_idx_of_a_wrong_length_is_refused(tmp_path, rng, name, change):
    data = idx(grey(rng, 2))
    data = data[:-1] if change < 0 else data + b"x"
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert "1568 bytes" in refused(load_images, path)


def test_broken_idx_is_refused(tmp_path, rng):
    path = tmp_path / "made-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(grey(rng, 50)))[:-2000])
    assert "cannot be read as an idx file" in refused(load_images, path)
    path.write_bytes(idx(np.arange(5, dtype=np.uint8)))
    assert "3 axes" in refused(load_images, path)
    path.write_bytes(idx(grey(rng, 2)))
    (tmp_path / "made-labels-idx1-ubyte").write_bytes(idx(np.arange(5, dtype=np.uint8)))
    assert "labels" in refused(load_images, path)


def test_cifar_layout(tmp_path, rng):
    made = make_cifar(tmp_path / "cifar-10-batches-py", rng)
    train = load_images("cifar10", root=tmp_path)
    assert train.images.shape == (10, 3, 32, 32)
    assert train.labels.tolist() == [
        label for i in range(1, 6) for label in made[f"data_batch_{i}"][b"labels"]
    ]
    test = load_images(tmp_path / "cifar-10-batches-py", "test")
    # in a batch the red plane comes first, row by row
    assert test.images[1, 0, 0, 5] == made["test_batch"][b"data"][1, 5]
    assert test.images[1, 1, 2, 3] == made["test_batch"][b"data"][1, 1024 + 2 * 32 + 3]
    assert (test.name, test.classes[9], len(test.classes)) == ("cifar10", "truck", 10)


def test_a_malicious_batch_is_refused_and_not_run(tmp_path, rng):
    folder, marker = tmp_path / "cifar-10-batches-py", tmp_path / "marker"
    made = make_cifar(folder, rng)
    attack = pickle.dumps({**made["test_batch"], b"extra": Touch(marker)}, protocol=2)
    (folder / "test_batch").write_bytes(attack)
    assert "mkdir" in refused(load_images, "cifar10", "test", root=tmp_path)
    assert not marker.exists()
    pickle.loads(attack)  # the attack is a real one
    assert marker.exists()


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {},
        {b"data": np.zeros((2, 3072)), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]},
        {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]},
    ],
)
def test_other_pickles_are_refused(tmp_path, batch):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    assert "not a CIFAR-10 batch" in refused(load_images, tmp_path, "test")


def test_broken_pickles_are_refused(tmp_path, rng):
    make_cifar(tmp_path / "c", rng)
    path = tmp_path / "c" / "test_batch"
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"<html>not found</html>"):
        path.write_bytes(data)
        assert "cannot be read as a CIFAR-10 batch" in refused(load_images, tmp_path / "c", "test")


def test_flat_folder(tmp_path, rng):
    pixels = rng.integers(0, 256, (3, 5, 7, 3), dtype=np.uint8)
    for i, image in enumerate(pixels):
        save(tmp_path / "in" / f"{i}.png", image)
    (tmp_path / "in" / "notes.txt").write_text("not an image")
    (tmp_path / "in" / "._0.png").write_bytes(b"what some systems leave in archives")
    found = load_images(tmp_path / "in")
    assert np.array_equal(found.images.permute(0, 2, 3, 1).numpy(), pixels)
    assert found.labels is None
    assert found.classes is None
    assert found.name == "in"


def test_class_folders_and_splits(tmp_path, rng):
    for split, n in (("train", 3), ("val", 1)):
        for label in ("dog", "cat"):
            for i in range(n):
                level = 200 if label == "dog" else 20
                save(
                    tmp_path / "pets" / split / label / "deep" / f"{i}.png",
                    np.full((4, 4), level, np.uint8),
                )
    train, test = (load_images(tmp_path / "pets", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (6, 2)
    assert train.classes == ("cat", "dog")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert test.only([1]).images.unique().tolist() == [200]
    save(tmp_path / "pets" / "test" / "cat" / "0.png", np.zeros((4, 4), np.uint8))
    assert load_images(tmp_path / "pets", "test").images.unique().tolist() == [0]


def test_a_split_that_is_absent_is_refused(tmp_path, rng):
    save(tmp_path / "in" / "train" / "0.png", grey(rng, 1)[0])
    assert "no test images" in refused(load_images, tmp_path / "in", "test")
    assert "val" in refused(load_images, tmp_path / "in", "val")


def test_linked_folders_are_followed_without_going_in_circles(tmp_path, rng):
    save(tmp_path / "far" / "0.png", grey(rng, 1)[0])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(tmp_path / "in")
    assert len(load_images(tmp_path / "in")) == 1


def test_sizes_must_agree_or_be_given(tmp_path, rng):
    save(tmp_path / "in" / "a.png", grey(rng, 1, 8, 8)[0])
    save(tmp_path / "in" / "b.png", grey(rng, 1, 8, 10)[0])
    message = refused(load_images, tmp_path / "in")
    assert "10x8" in message
    assert "8x8" in message
    assert "size" in message
    assert load_images(tmp_path / "in", size=6).images.shape == (2, 1, 6, 6)


def test_resizing_takes_the_center_and_does_not_alias(tmp_path):
    # stripes of one pixel average to grey; the white sides of the wide picture are cut off
    wide = np.full((32, 96), 255, np.uint8)
    wide[:, 32:64] = 255 * (np.arange(32) % 2)
    save(tmp_path / "wide.png", wide)
    small = load_images(tmp_path / "wide.png", size=8).images[0, 0].float()
    assert small.shape == (8, 8)
    assert (small - 127.5).abs().max() < 20
    # arrays go the same way as pictures
    np.save(tmp_path / "wide.npy", wide)
    assert torch.equal(load_images(tmp_path / "wide.npy", size=8).images[0, 0].float(), small)


def test_channels_convert_both_ways(tmp_path, rng):
    color = rng.integers(0, 256, (2, 6, 6, 3), dtype=np.uint8)
    np.save(tmp_path / "c.npy", color)
    for i in range(2):
        save(tmp_path / "in" / f"{i}.png", color[i])
    luma = np.stack([np.array(Image.fromarray(image).convert("L")) for image in color])
    for source in ("c.npy", "in"):
        assert np.array_equal(load_images(tmp_path / source, channels=1).images[:, 0], luma)
    np.save(tmp_path / "g.npy", luma)
    back = load_images(tmp_path / "g.npy", channels=3).images
    assert back.shape == (2, 3, 6, 6)
    assert all(np.array_equal(back[:, c], luma) for c in range(3))
    assert "1 (grey) or 3" in refused(load_images, tmp_path / "in", channels=2)


def test_grey_and_color_mixed_come_out_as_color(tmp_path, rng):
    pixels = grey(rng, 1, 4, 4)[0]
    save(tmp_path / "in" / "a.png", pixels)
    save(tmp_path / "in" / "b.png", np.zeros((4, 4, 3), np.uint8))
    found = load_images(tmp_path / "in").images
    assert found.shape == (2, 3, 4, 4)
    assert np.array_equal(found[0, 2], pixels)


def test_empty_and_broken_folders_are_refused(tmp_path, rng):
    (tmp_path / "in").mkdir()
    assert "contains no images" in refused(load_images, tmp_path / "in")
    save(tmp_path / "in" / "a.png", grey(rng, 1)[0])
    (tmp_path / "in" / "b.png").write_text("text")
    assert "b.png is not a picture that can be read" in refused(load_images, tmp_path / "in")


@pytest.mark.parametrize("size", [0, -3, 2.5, True])
def test_bad_sizes_are_refused(size):
    assert "size" in refused(load_images, "sample", size=size)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 7), (1, 1, 6, 7)),
        ((1, 6, 7), (1, 1, 6, 7)),
        ((3, 6, 7), (1, 3, 6, 7)),
        ((6, 7, 3), (1, 3, 6, 7)),
        ((6, 7, 1), (1, 1, 6, 7)),
        ((5, 6, 7), (5, 1, 6, 7)),
        ((5, 1, 6, 7), (5, 1, 6, 7)),
        ((5, 3, 6, 7), (5, 3, 6, 7)),
        ((5, 6, 7, 3), (5, 3, 6, 7)),
        ((5, 6, 7, 1), (5, 1, 6, 7)),
    ],
)
def test_the_axes_of_arrays(tmp_path, rng, shape, expected):
    array = rng.integers(0, 256, shape, dtype=np.uint8)
    np.save(tmp_path / "a.npy", array)
    images = load_images(tmp_path / "a.npy").images
    assert images.shape == expected
    # pixel (4, 2) of the last image and channel, wherever the axes are
    at = {2: (4, 2), 3: (-1, 4, 2), 4: (-1, -1, 4, 2)}[len(shape)]
    if shape[-1] in (1, 3):
        at = {3: (4, 2, -1), 4: (-1, 4, 2, -1)}[len(shape)]
    assert images[-1, -1, 4, 2] == array[at]
    assert torch.equal(as_observation(tmp_path / "a.npy").values, images.float() / 255)


@pytest.mark.parametrize("shape", [(2, 4, 5, 6), (0, 5, 5), ()])
def test_other_shapes_are_refused(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    assert "a.npy" in refused(load_images, tmp_path / "a.npy")


@pytest.mark.parametrize("shape", [(4, 1, 50), (1, 1, 50), (3, 2, 50), (2, 1, 4, 5, 6)])
def test_signals_of_other_axes_stay_as_they_are(tmp_path, rng, shape):
    array = rng.normal(size=shape).astype(np.float32) * 10
    np.savez(tmp_path / "a.npz", images=array, labels=np.arange(shape[0]))
    found = load_images(tmp_path / "a.npz")
    assert found.images.dtype == torch.float32
    assert np.array_equal(found.images, array) and np.array_equal(found.floats([0]), array[:1])
    assert np.array_equal(found.only([0]).images, array[:1])
    assert "pictures only" in refused(load_images, tmp_path / "a.npz", size=8)
    np.save(tmp_path / "a.npy", array)
    assert np.array_equal(read(tmp_path / "a.npy").values, array)
    np.save(tmp_path / "a.npy", np.full(shape, 51, np.uint8))
    assert read(tmp_path / "a.npy").values.unique().item() == pytest.approx(0.2)
    assert load_images(tmp_path / "a.npy").floats().unique().item() == pytest.approx(0.2)
    np.save(tmp_path / "a.npy", array * np.nan)
    assert "NaN" in refused(load_images, tmp_path / "a.npy")


def test_signals_by_name_keep_their_axes(tmp_path, rng):
    array = rng.normal(size=(3, 5, 6, 7))
    np.savez(tmp_path / "a.npz", signals=array)
    assert np.allclose(load_images(tmp_path / "a.npz").images, array)
    np.savez(tmp_path / "a.npz", signals=array[0, 0])
    assert "(n, channels, *size)" in refused(load_images, tmp_path / "a.npz")


def test_floats_round_to_the_nearest_level(tmp_path):
    for dtype in ("<f4", ">f8", "<f2"):
        np.save(tmp_path / "a.npy", np.array([[0, 0.5], [0.2, 1], [1, 0]], dtype))
        assert load_images(tmp_path / "a.npy").images.flatten().tolist() == [
            0,
            128,
            51,
            255,
            255,
            0,
        ]


@pytest.mark.parametrize("bad", [[[0, 1.01]], [[-0.01, 0]], [[np.nan, 0]], [[1, 2]]])
def test_values_out_of_range_are_refused(tmp_path, bad):
    np.save(tmp_path / "a.npy", np.array(bad * 3))
    assert "uint8 or floats in [0, 1] are accepted" in refused(load_images, tmp_path / "a.npy")


def test_npz_with_labels(tmp_path, rng):
    images, labels = grey(rng, 4), np.array([5, 0, 5, 2], np.int32)
    np.savez(tmp_path / "a.npz", images=images, labels=labels, other=labels)
    found = load_images(tmp_path / "a.npz")
    assert np.array_equal(found.images[:, 0], images)
    assert found.labels.tolist() == [5, 0, 5, 2]
    np.savez(tmp_path / "a.npz", anything=images)
    assert load_images(tmp_path / "a.npz").labels is None
    np.savez(tmp_path / "a.npz", one=images, two=images)
    message = refused(load_images, tmp_path / "a.npz")
    assert "one, two" in message
    assert "images" in message
    np.savez(tmp_path / "a.npz", images=images, labels=labels[:3])
    assert "labels" in refused(load_images, tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", images=images, labels=labels / 2)
    assert "whole number" in refused(load_images, tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_numpy_files_with_pickles_or_rubbish_are_refused(tmp_path, name):
    path, marker = tmp_path / name, tmp_path / "marker"
    objects = np.array([Touch(marker)], dtype=object)
    np.save(path, objects) if name == "a.npy" else np.savez(path, a=objects)
    for function in (load_images, read):
        assert "without pickled objects" in refused(function, path)
    assert not marker.exists()
    for rubbish in (b"", b"some text", b"PK\x03\x04 broken", b"\x93NUMPY\x01\x00"):
        path.write_bytes(rubbish)
        assert "cannot be read as a NumPy file" in refused(load_images, path)


@pytest.mark.parametrize(
    "source",
    ["fashion", "no/such", "picture.png", "./mnist", "", Path("mnist"), "/no/such", "x" * 300],
)
def test_unknown_names_and_paths(source, tmp_path):
    message = refused(load_images, source, root=tmp_path)
    assert all(name in message for name in (str(source), "mnist", "cifar10", "sample"))


def test_files_of_unknown_kind_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    message = refused(load_images, tmp_path / "a.txt")
    assert all(part in message for part in ("a.txt", ".png", "idx"))


def test_relative_paths_are_sought_here_and_then_below_the_root(tmp_path, rng):
    save(tmp_path / "root/scenes/church/train/0.png", np.full((9, 9, 3), 10, np.uint8))
    assert load_images(
        "scenes/church", root=tmp_path / "root", size=4
    ).images.unique().tolist() == [10]
    save(Path("scenes/church/train/0.png"), np.full((9, 9, 3), 20, np.uint8))
    assert load_images("scenes/church", root=tmp_path / "root").images.unique().tolist() == [20]


def test_sample():
    for split in ("train", "test"):
        found = load_images("sample", split)
        assert found.images.shape == (512, 1, 28, 28)
    assert found.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert set(found.labels.tolist()) == set(range(10))
    assert load_images("sample", size=32, channels=3).images.shape == (512, 3, 32, 32)
    assert "MNIST" in found.source
    assert len(found.only(range(5))) + len(found.only(range(5, 10))) == 512


def test_sample_photos():
    found = load_images("sample-photos")
    assert found.images.shape == (128, 3, 32, 32)
    assert found.labels[:8].tolist() == [3, 8, 8, 0, 6, 6, 1, 6]
    assert found.classes[3] == "cat" and "CIFAR-10" in found.source


def test_list_of_an_empty_root(tmp_path):
    entries = {entry.name: entry for entry in list_datasets(tmp_path)}
    assert list(entries) == ["mnist", "cifar10", "sample", "sample-photos"]
    assert entries["mnist"].where is None
    assert "basis lab data download mnist" in entries["mnist"].how
    assert entries["cifar10"].train == 50_000
    sample = entries["sample"]
    assert sample.where.is_dir()
    assert sample.test == len(load_images("sample"))


def test_list_finds_what_is_there(tmp_path, rng):
    make_mnist(tmp_path, rng, compressed=True)
    make_cifar(tmp_path / "cifar-10-batches-py", rng)
    for name in ("train/a.jpg", "train/b.png", "val/c.png", "val/notes.txt"):
        (tmp_path / "scenes/church" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "scenes/church" / name).touch()
    (tmp_path / "scenes/bedroom").mkdir()
    entries = {entry.name: entry for entry in list_datasets(tmp_path)}
    assert list(entries) == ["mnist", "cifar10", "sample", "sample-photos", "scenes/church"]
    assert entries["mnist"].where == tmp_path / "MNIST/raw"
    assert entries["cifar10"].where
    assert (entries["scenes/church"].train, entries["scenes/church"].test) == (2, 1)
    (tmp_path / "cifar-10-batches-py/test_batch").unlink()
    assert list_datasets(tmp_path)[1].where is None


def test_lsun_is_read_from_its_lmdb(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    g = np.random.default_rng(0)
    photos = [g.integers(0, 256, (10, side, 3), dtype=np.uint8) for side in (12, 10, 15)]
    folder = tmp_path / "church_outdoor_train_lmdb"
    with (
        lmdb.open(str(folder), map_size=1 << 20) as environment,
        environment.begin(write=True) as t,
    ):
        for number, photo in enumerate(photos):
            file = io.BytesIO()
            Image.fromarray(photo).save(file, "WEBP", lossless=True)
            t.put(f"{number:040x}".encode(), file.getvalue())
    read = load_images(folder, size=10)
    assert read.images.shape == (3, 3, 10, 10) and read.name == folder.name
    assert np.array_equal(read.images[0].movedim(0, -1).numpy(), photos[0][:, 1:11])
    assert load_images(folder, size=4, channels=1).images.shape == (3, 1, 4, 4)
    with pytest.raises(BasisError, match="give a size"):
        load_images(folder)
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as t:
        t.put(b"z", b"no picture")
    with pytest.raises(BasisError, match=r"lmdb/z is not a picture"):
        load_images(folder, size=10)
    (folder / "data.mdb").write_bytes(b"no lmdb")
    with pytest.raises(BasisError, match="not an lmdb that can be read"):
        load_images(folder, size=10)
