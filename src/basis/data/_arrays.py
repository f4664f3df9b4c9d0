"""NumPy files, without pickles."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from basis._errors import BasisError

NUMPY = (".npy", ".npz")


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; the one of an .npy under the name ''."""
    if not path.is_file():
        raise BasisError(
            f"{path} is a folder; give files" if Path(path).is_dir() else f"there is no file {path}"
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            arrays = {key: loaded[key] for key in loaded.files}
    except Exception as error:  # broken zips, headers and streams each have their own
        raise BasisError(
            f"{path} is not a NumPy file that can be read ({type(error).__name__}); "
            "accepted: .npy or .npz of numbers, without pickled objects"
        ) from error
    # np.load hands out members that are not arrays as raw bytes
    strays = [key for key, value in arrays.items() if not isinstance(value, np.ndarray)]
    if strays or not arrays:
        raise BasisError(f"{path} holds {', '.join(strays) or 'nothing'} instead of arrays")
    return arrays


def pick(arrays: dict[str, np.ndarray], keys: Iterable[str], path: Path) -> np.ndarray:
    """The array under the first of `keys` that is there, else the only one."""
    keys = tuple(keys)
    for key in keys:
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise BasisError(
        f"{path} holds arrays named {', '.join(sorted(arrays))}; "
        f"one named {' or '.join(keys)} is needed, or a single array of any name"
    )
