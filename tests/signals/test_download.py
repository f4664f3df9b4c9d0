"""Downloads, from folders and servers of this machine."""

import hashlib
import io
import os
import socket
import tarfile
from pathlib import Path

import local_server
import numpy as np
import pytest
from signal_files import make_cifar, make_mnist, refused

from basis.signals.datasets import DATASETS, download, load_images
from basis.signals.download import RemoteFile

serve = local_server.serve


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def publish(folder: Path, *bases: str) -> tuple[RemoteFile, ...]:
    """What a folder offers, under its true checksums."""
    return tuple(
        RemoteFile(
            path.name,
            hashlib.md5(path.read_bytes()).hexdigest(),
            tuple(f"{base}/{path.name}" for base in bases),
        )
        for path in sorted(folder.iterdir())
    )


def offer_mnist(tmp_path, rng):
    made = make_mnist(tmp_path / "offer", rng, compressed=True)
    return made, tmp_path / "offer" / "MNIST" / "raw"


def test_download_mnist_over_http(tmp_path, rng, serve, capfd):
    made, offer = offer_mnist(tmp_path, rng)
    remote = publish(offer, serve(offer))
    folder = download("mnist", tmp_path / "root", remote=remote)
    assert folder == tmp_path / "root/MNIST/raw"
    assert "train-images-idx3-ubyte.gz" in capfd.readouterr().err  # the bar
    assert np.array_equal(
        load_images("mnist", root=tmp_path / "root").images[:, 0], made["train"][0]
    )
    assert len(os.listdir(folder)) == 4


def test_mirrors_are_tried_in_turn(tmp_path, rng, serve, capfd):
    _, offer = offer_mnist(tmp_path, rng)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    for path in offer.iterdir():
        (wrong / path.name).write_bytes(b"an error page")
    (tmp_path / "none").mkdir()
    bases = (serve(tmp_path / "none"), serve(wrong), serve(offer))
    remote = publish(offer, *bases)
    download("mnist", tmp_path / "root", progress=False, remote=remote)
    assert len(load_images("mnist", root=tmp_path / "root")) == 7
    assert capfd.readouterr().err == ""


def test_a_wrong_checksum_puts_nothing_in_place(tmp_path, rng, serve):
    _, offer = offer_mnist(tmp_path, rng)
    remote = tuple(
        RemoteFile(file.name, "0" * 32, file.urls) for file in publish(offer, serve(offer))
    )
    message = refused(download, "mnist", tmp_path / "root", False, remote=remote)
    assert "MD5" in message
    assert "0" * 32 in message
    assert [path for path in (tmp_path / "root").rglob("*") if path.is_file()] == []


def test_present_files_are_left_alone(tmp_path, rng, serve):
    _, offer = offer_mnist(tmp_path, rng)
    raw = tmp_path / "root/MNIST/raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(b"mine")
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(b"mine too")
    remote = publish(offer, serve(offer))
    download("mnist", tmp_path / "root", False, remote=remote)
    assert (raw / "train-images-idx3-ubyte").read_bytes() == b"mine"
    assert (raw / "t10k-images-idx3-ubyte.gz").read_bytes() == b"mine too"
    assert len(os.listdir(raw)) == 4


def test_without_a_network_the_message_says_what_to_do(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        for name, files in ((n, d.remote) for n, d in DATASETS.items() if d.remote):
            offline = tuple(
                RemoteFile(file.name, file.checksum, (base + file.name,)) for file in files
            )
            message = refused(download, name, tmp_path, False, remote=offline)
            assert f"{base + files[0].name} (no connection)" in message
            assert "by hand" in message
            assert str(tmp_path) in message
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_addresses_are_secure_and_named_after_their_files():
    files = [file for d in DATASETS.values() for file in d.remote]
    assert len(files) == 5
    assert len({file.checksum for file in files}) == 5
    for file in files:
        assert all(
            url.startswith("https://") and url.endswith("/" + file.name) for url in file.urls
        )
        assert len(file.checksum) == 32
        assert int(file.checksum, 16)


def make_archive(path: Path, folder: Path, extra: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in extra.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")  # a link in place of a file
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
        for file in sorted(folder.iterdir()):
            tar.add(file, f"cifar-10-batches-py/{file.name}")


def test_download_cifar_unpacks_only_the_batches(tmp_path, rng, serve):
    made = make_cifar(tmp_path / "made", rng)
    (tmp_path / "offer").mkdir()
    extra = {
        "../evil": b"x",
        "cifar-10-batches-py/evil": b"x",
        "cifar-10-batches-py/../../evil": b"x",
    }
    make_archive(tmp_path / "offer/cifar-10-python.tar.gz", tmp_path / "made", extra)
    remote = publish(tmp_path / "offer", serve(tmp_path / "offer"))
    folder = download("cifar10", tmp_path / "root", False, remote=remote)
    assert os.listdir(tmp_path / "root") == ["cifar-10-batches-py"]
    assert sorted(os.listdir(folder)) == sorted(made)
    assert not list(tmp_path.rglob("*evil*"))
    found = load_images("cifar10", "test", root=tmp_path / "root")
    assert found.labels.tolist() == made["test_batch"][b"labels"]

    # what is there stays, what is absent is put back
    (folder / "data_batch_2").unlink()
    (folder / "data_batch_3").write_bytes(b"mine")
    download("cifar10", tmp_path / "root", False, remote=remote)
    assert (folder / "data_batch_2").is_file()
    assert (folder / "data_batch_3").read_bytes() == b"mine"


def test_an_archive_put_there_by_hand_needs_no_network(tmp_path, rng):
    make_cifar(tmp_path / "made", rng)
    root = tmp_path / "root"
    root.mkdir()
    make_archive(root / "cifar-10-python.tar.gz", tmp_path / "made", {})
    remote = publish(root, "http://127.0.0.1:9/none")
    assert len(load_images(download("cifar10", root, False, remote=remote))) == 10
    assert (root / "cifar-10-python.tar.gz").is_file()


def test_bad_archives_are_refused(tmp_path, rng):
    make_cifar(tmp_path / "made", rng)
    (tmp_path / "made/data_batch_5").unlink()
    root = tmp_path / "root"
    root.mkdir()
    archive = root / "cifar-10-python.tar.gz"
    make_archive(archive, tmp_path / "made", {})
    remote = publish(root, "http://127.0.0.1:9/none")
    assert "data_batch_5" in refused(download, "cifar10", root, False, remote=remote)
    archive.write_bytes(archive.read_bytes()[:-500])
    message = refused(download, "cifar10", root, False, remote=remote)
    assert f"{archive} has MD5" in message
    remote = publish(root, "http://127.0.0.1:9/none")
    assert "cannot be unpacked" in refused(download, "cifar10", root, False, remote=remote)
    assert os.listdir(root) == [archive.name]


def test_download_of_other_names(tmp_path):
    assert "mnist, cifar10" in refused(download, "fashion", tmp_path)
    assert (download("sample", tmp_path) / "README.md").is_file()
    (tmp_path / "file").touch()
    assert "cannot write" in refused(download, "cifar10", tmp_path / "file" / "x", False)
