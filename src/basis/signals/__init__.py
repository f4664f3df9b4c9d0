"""Data: sets of images or other signals, pictures and mixtures, read from files into tensors.

Pixels are in [0, 1] once they are floats. Names are resolved at first use, so that importing this
package loads neither torch nor Pillow."""

from __future__ import annotations

from basis.signals.datasets import CatalogueEntry, catalogue, load_images
from basis.signals.download import PUBLISHED, Published, checksum, download, fetch
from basis.signals.observation import (
    READERS,
    MixtureFile,
    Observation,
    Observed,
    as_observation,
    fit_observation,
    from_numpy,
    open_mixtures,
    read,
    read_array,
    read_mixture,
    read_observation,
    reader,
    write_mixture,
)
from basis.signals.pictures import MOST_PIXELS, find_pictures, read_image
from basis.signals.places import NAMES, ImageSet, Split, data_root

__all__ = [
    "MOST_PIXELS",
    "NAMES",
    "PUBLISHED",
    "READERS",
    "CatalogueEntry",
    "ImageSet",
    "MixtureFile",
    "Observation",
    "Observed",
    "Published",
    "Split",
    "as_observation",
    "catalogue",
    "checksum",
    "data_root",
    "download",
    "fetch",
    "find_pictures",
    "fit_observation",
    "from_numpy",
    "load_images",
    "open_mixtures",
    "read",
    "read_array",
    "read_image",
    "read_mixture",
    "read_observation",
    "reader",
    "write_mixture",
]
