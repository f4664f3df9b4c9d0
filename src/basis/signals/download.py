"""Downloads from publishers, checked before a file is used."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from basis.errors import BasisError

_BLOCK = 1 << 18  # bytes read at once


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its mirrors, in the order they are tried, and its checksum."""

    name: str
    checksum: str
    urls: tuple[str, ...]
    algorithm: str = "md5"


def download_file(
    file: RemoteFile,
    to: Path,
    by_hand: Path,
    also: str = "",
    progress: bool = True,
    timeout: float = 30.0,
) -> None:
    """Downloads a file from the first mirror whose answer has the right checksum.

    Args:
        file: What to download.
        to: Where it is written: a temporary path, which callers move when this returns.
        by_hand: Where the error message tells users to put the file themselves.
        also: What else the error message says.
        progress: Whether to show a progress bar.
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


def checksum(path: str | Path, file: RemoteFile) -> str:
    """The checksum of the file at `path`, by the algorithm of the published file."""
    with open(path, "rb") as opened:
        return hashlib.file_digest(
            opened, lambda: hashlib.new(file.algorithm, usedforsecurity=False)
        ).hexdigest()


def unpack(archive: Path, to: Path, folder: str, names: Iterable[str]) -> None:
    """Writes these files of a folder in a tar archive, and nothing else of it, into `to`."""
    wanted = {f"{folder}/{name}": name for name in names}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isfile() and member.name in wanted:
                    content = tar.extractfile(member)
                    assert content is not None  # true for every regular file
                    with open(to / wanted.pop(member.name), "wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise BasisError(f"{archive} cannot be unpacked: {' '.join(str(error).split())}") from error
    if wanted:
        raise BasisError(f"{archive} does not contain {', '.join(sorted(wanted))}")


def _download_url(url: str, to: Path, name: str, progress: bool, timeout: float) -> None:
    import requests
    from tqdm import tqdm

    with requests.get(url, stream=True, timeout=timeout) as answer:
        answer.raise_for_status()
        total = int(answer.headers.get("content-length", 0)) or None
        bar = tqdm(total=total, unit="B", unit_scale=True, desc=name, disable=not progress)
        with bar, open(to, "wb") as file:
            for block in answer.iter_content(_BLOCK):
                file.write(block)
                bar.update(len(block))


def _reason(error: Exception, timeout: float) -> str:
    """Why a download failed, in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer in {timeout:g} s"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return " ".join(str(error).split()) or type(error).__name__
