"""Observations and data sets, read from files into tensors.

Pixels are in [0, 1] once they are floats. The modules that read files register their formats when
they are imported: a new format is one module with a `reader`, and one line here.
"""

from __future__ import annotations

from basis.signals import numpy_files, pictures  # noqa: F401
from basis.signals.datasets import (
    DATASETS,
    Dataset,
    DatasetInfo,
    download,
    list_datasets,
    load_images,
)
from basis.signals.image_set import ImageSet, Split, data_root
from basis.signals.observation import READERS, Observation, as_observation, read, reader
from basis.signals.pictures import find_pictures

__all__ = [
    "DATASETS",
    "READERS",
    "Dataset",
    "DatasetInfo",
    "ImageSet",
    "Observation",
    "Split",
    "as_observation",
    "data_root",
    "download",
    "find_pictures",
    "list_datasets",
    "load_images",
    "read",
    "reader",
]
