"""Downloads of the public sets from their publishers, checked before a file is put in place."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basis.errors import BasisError
from basis.files import whole_file
from basis.signals.places import (
    CIFAR_ARCHIVE,
    CIFAR_BATCHES,
    CIFAR_FOLDER,
    MNIST_FOLDER,
    SAMPLES,
    data_root,
    plain_or_gz,
    sample_path,
)

_BLOCK = 1 << 18  # bytes read at once


@dataclass(frozen=True)
class Published:
    """A file, where it is published (mirrors in the order they are tried), and what it must be."""

    name: str
    checksum: str
    urls: tuple[str, ...]
    algorithm: str = "md5"


def _mnist(name: str, md5: str) -> Published:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return Published(name, md5, tuple(mirror + name for mirror in mirrors))


PUBLISHED: Mapping[str, tuple[Published, ...]] = {
    "mnist": (
        _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (
        Published(
            CIFAR_ARCHIVE,
            "c58f30108f718f92721af3b95e74349a",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
        ),
    ),
}
"""The files of each set that `download` fetches."""


def download(
    name: str,
    root: str | Path | None = None,
    progress: bool = True,
    *,
    timeout: float = 30.0,
    published: Mapping[str, tuple[Published, ...]] = PUBLISHED,
) -> Path:
    """Downloads `mnist` or `cifar10` into the data root and returns the folder that holds it.

    Files that are there already are left alone, so an interrupted download goes on with the next
    file. A file is put in place only when its checksum agrees. A CIFAR-10 archive that lies in
    the root is unpacked without the network.
    """
    if name in SAMPLES:
        return sample_path(name).parent
    if name not in published:
        raise BasisError(f"{name!r} cannot be downloaded; accepted: {', '.join(sorted(published))}")
    root = data_root(root)
    if name == "cifar10":
        return _download_cifar(root, published[name][0], progress, timeout)
    folder = root / MNIST_FOLDER
    for file in published[name]:
        if plain_or_gz(folder / file.name.removesuffix(".gz")) is None:
            with whole_file(folder / file.name) as temporary:
                fetch(file, temporary, folder / file.name, "", progress, timeout)
    return folder


def _download_cifar(root: Path, file: Published, progress: bool, timeout: float) -> Path:
    folder, archive = root / CIFAR_FOLDER, root / file.name
    batches = [batch for names in CIFAR_BATCHES.values() for batch in names]
    absent = [batch for batch in batches if not (folder / batch).is_file()]
    if not absent:
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        workplace = tempfile.TemporaryDirectory(dir=root, prefix=".cifar10-")
    except OSError as error:
        raise BasisError(
            f"cannot write {root}: {error.strerror}; name a folder that can be written"
        ) from error
    with workplace as work:
        found = checksum(archive, file) if archive.is_file() else ""
        if found != file.checksum:
            wrong = f"; {archive} has MD5 {found}, not {file.checksum}" if found else ""
            fetched = Path(work, file.name)
            fetch(file, fetched, archive, wrong, progress, timeout)
            archive = fetched
        _unpack(archive, Path(work), absent)
        folder.mkdir(exist_ok=True)
        for batch in absent:
            os.replace(Path(work, batch), folder / batch)
    return folder


def fetch(
    file: Published,
    to: Path,
    by_hand: Path,
    also: str = "",
    progress: bool = True,
    timeout: float = 30.0,
) -> None:
    """Downloads a file from the first mirror whose answer has the published checksum.

    Args:
        file: What to download.
        to: Where it is written. Callers give a temporary path, and move the file when this returns.
        by_hand: Where the error tells people to put the file themselves.
        also: What else the error says.
        progress: Whether a bar shows on the terminal.
        timeout: Seconds without an answer after which the next mirror is tried.
    """
    reasons = []
    for url in file.urls:
        try:
            _download_url(url, to, file.name, progress, timeout)
        except (OSError, ValueError) as error:
            reasons.append(f"{url} ({_reason(error, timeout)})")
            continue
        found = checksum(to, file)
        if found == file.checksum:
            return
        reasons.append(f"{url} (its {file.algorithm.upper()} is {found}, not {file.checksum})")
    raise BasisError(
        f"could not download {file.name} from {' nor from '.join(reasons)}{also}; "
        f"fetch it by hand, put it at {by_hand}, and run this again"
    )


def _download_url(url: str, to: Path, name: str, progress: bool, timeout: float) -> None:
    # Loaded here: reading data that is there needs neither. Not `pooch.retrieve`, which knows no
    # mirrors and leaves files that only their owner can read.
    import pooch

    bar = _Bar(name) if progress else False
    pooch.HTTPDownloader(progressbar=bar, chunk_size=_BLOCK, timeout=timeout)(url, str(to), None)


class _Bar:
    """A progress bar for pooch that shows once the server has answered, and not before."""

    def __init__(self, name: str) -> None:
        self.name, self.total = name, 0
        self.bar: Any = None

    def update(self, count: int) -> None:
        """Adds bytes; pooch has set `total`, to zero where the server does not tell it."""
        if self.bar is None:
            from tqdm import tqdm

            self.bar = tqdm(total=self.total or None, unit="B", unit_scale=True, desc=self.name)
        self.bar.update(count)

    def reset(self) -> None:
        """Back to zero: pooch then adds the total, since its last block may be a short one."""
        if self.bar is not None:
            self.bar.n = 0

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self.bar is not None:
            self.bar.close()


def _reason(error: Exception, timeout: float) -> str:
    """Why a download failed, without the library's own types and addresses."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer in {timeout:g} s"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return " ".join(str(error).split()) or type(error).__name__


def _unpack(archive: Path, to: Path, batches: list[str]) -> None:
    """Writes the wanted batches, and nothing else that the archive may hold, into `to`."""
    wanted = {f"{CIFAR_FOLDER}/{batch}": batch for batch in batches}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isfile() and member.name in wanted:
                    content = tar.extractfile(member)
                    assert content is not None  # as it is for every regular file
                    with open(to / wanted.pop(member.name), "wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise BasisError(f"{archive} cannot be unpacked: {' '.join(str(error).split())}") from error
    if wanted:
        raise BasisError(f"{archive} holds no {', '.join(sorted(wanted))}")


def checksum(path: str | Path, file: Published) -> str:
    """The checksum of the file at `path`, by the algorithm of the published one."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(
            opened, lambda: hashlib.new(file.algorithm, usedforsecurity=False)
        ).hexdigest()
