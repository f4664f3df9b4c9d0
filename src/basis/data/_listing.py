"""Which files of a folder are pictures, found without opening any."""

from __future__ import annotations

import os
from pathlib import Path

from basis._errors import BasisError
from basis.data._places import Split

PICTURES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".bmp",
    ".gif",
    ".webp",
    ".tif",
    ".tiff",
    ".pgm",
    ".ppm",
    ".pbm",
    ".pnm",
)
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that files of these endings may have, whatever their ending says: left to itself
Pillow takes a file for PostScript by its first bytes, and hands it to another program to run.
"""
SPLITS = ("train", "val", "test")


def split_folder(folder: Path, split: Split) -> Path:
    """The sub-folder of a split: `train`, or `test` else `val`; the folder itself without any."""
    present = [name for name in SPLITS if (folder / name).is_dir()]
    if not present:
        return folder
    for name in ("train",) if split == "train" else ("test", "val"):
        if name in present:
            return folder / name
    raise BasisError(
        f"{folder} has no {split} images: of train, val and test it holds {' and '.join(present)}"
    )


def find_pictures(folder: Path) -> list[Path]:
    """Image files below a folder, sorted; hidden ones are left out."""
    found: list[Path] = []
    seen: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        # links to folders are common in data sets, and may lead in circles
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(here, name)
            for name in files
            if name.lower().endswith(PICTURES) and not name.startswith(".")
        ]
    return sorted(found)
