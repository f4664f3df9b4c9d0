"""LSUN as it is published: one lmdb of encoded pictures per category and split."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from basis._errors import BasisError
from basis._reading import reading
from basis.data._folder import stack_pictures
from basis.data._pictures import decode_bytes

MOST = 150_000
"""Pictures read at most: bedrooms are three million, which no memory here holds."""


def is_lmdb(folder: Path) -> bool:
    """Whether a folder is an lmdb."""
    return (folder / "data.mdb").is_file()


def read_lmdb(folder: Path, *, size: int | None = None, channels: int | None = None) -> Tensor:
    """Images (n, c, h, w) of an lmdb of encoded pictures, in the order of its keys."""
    try:
        import lmdb
    except ImportError as error:
        raise BasisError(
            f"{folder} is an lmdb, which needs a package: pip install 'basis-separation[lsun]'"
        ) from error
    name = os.fsencode(folder)  # names that are no UTF-8 are names too
    with reading(folder, "an lmdb"):
        try:
            with lmdb.open(name, readonly=True, lock=False, subdir=True) as environment:
                _check_whole(environment, folder)
                if not environment.stat()["entries"]:
                    raise BasisError(f"{folder} holds no pictures")
                return stack_pictures(_pictures(environment, folder), size, channels)
        except lmdb.Error as error:
            raise BasisError(f"{folder} is not an lmdb that can be read: {error}") from error


def _check_whole(environment: Any, folder: Path) -> None:
    """Refuses a file that ends before its last page: reading beyond the end kills the process."""
    pages = environment.info()["last_pgno"] + 1
    size, needed = (folder / "data.mdb").stat().st_size, pages * environment.stat()["psize"]
    if size < needed:
        raise BasisError(f"{folder / 'data.mdb'} is cut short: {size} of {needed} bytes are there")


def _pictures(environment: Any, folder: Path) -> Iterator[tuple[Path, Image.Image]]:
    with environment.begin() as transaction:
        for number, (key, value) in enumerate(transaction.cursor()):
            if number >= MOST:
                return
            name = folder / key.decode("ascii", "replace")
            yield name, decode_bytes(value, name)
