"""NumPy files, inspected before they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from basis.errors import BasisError
from basis.files import check_fits_memory, check_regular, reading
from basis.signals.arrays import as_floats, as_tensor
from basis.signals.observation import Observation, reader

NUMPY = (".npy", ".npz")
_NAMED = 8  # arrays of a file that an error names


@reader(*NUMPY)
def read_numpy(path: Path) -> Observation:
    """Reads an .npy, or an .npz with `observation` (or a single array), `sources` and `alphas`."""
    arrays = load_arrays(path)
    array = pick(arrays, ("observation", "mixture"), path)
    found: dict[str, Any] = {
        name: as_floats(as_tensor(arrays[name], path), path)
        for name in ("sources", "alphas")
        if name in arrays
    }
    # Sources have one more axis than a batch.
    batched = True if "sources" in found and found["sources"].ndim == array.ndim + 1 else None
    try:
        return Observation(as_floats(as_tensor(array, path), path), batched, **found)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; the array of an .npy under the name ''."""
    check_regular(path)
    with reading(
        path, "a NumPy file", "accepted: .npy or .npz of numbers, without pickled objects"
    ):
        _check_sizes(path)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            arrays = {key: loaded[key] for key in loaded.files}
    # np.load returns members that are not arrays as raw bytes
    others = [key for key, value in arrays.items() if not isinstance(value, np.ndarray)]
    if others or not arrays:
        raise BasisError(f"{path} contains {_listed(others) or 'nothing'} instead of arrays")
    return arrays


def pick(arrays: dict[str, np.ndarray], keys: Iterable[str], path: Path) -> np.ndarray:
    """The array under the first of `keys` that exists, else the only one."""
    keys = tuple(keys)
    for key in keys:
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise BasisError(
        f"{path} contains arrays named {_listed(sorted(arrays))}; "
        f"one named {' or '.join(keys)} is needed, or a single array of any name"
    )


def _check_sizes(path: Path) -> None:
    """Rejects arrays larger than the bytes they are stored in, or than memory, before reading.

    A compressed file of a few kilobytes can announce, and contain, any number of zeros.
    """
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            _check_header(file, path.stat().st_size)
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_fits_memory(2 * sum(member.file_size for member in members), path)
        for member in members:
            with archive.open(member) as file:
                _check_header(file, member.file_size)


def _check_header(file: IO[bytes], size: int) -> None:
    """Compares what the header of an .npy announces with its number of bytes."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        return  # not an array: `np.load` says so, or returns it as bytes
    first = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it contains pickled objects")
    count: int = math.prod(int(side) for side in shape)
    if any(side < 0 for side in shape) or count * dtype.itemsize > size:
        raise ValueError(f"it announces shape {shape} of {dtype} and has {size} bytes")
    if dtype.itemsize == 0 and count:
        raise ValueError(f"its values are {dtype}, which have no size")


def _listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(name if len(name) <= 40 else f"{name[:37]}..." for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown
