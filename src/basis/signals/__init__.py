"""Observations and data sets, read from files into tensors.

Pixels are in [0, 1] once they are floats. The modules that read files register their formats when
they are imported: a new format is one module with a `reader`, and one line here.
"""

from __future__ import annotations

from basis.signals import numpy_files, pictures  # noqa: F401
from basis.signals.arrays import to_batch
from basis.signals.datasets import load_images
from basis.signals.image_set import ImageSet
from basis.signals.observation import Observation, read, reader

__all__ = [
    "ImageSet",
    "Observation",
    "load_images",
    "read",
    "reader",
    "to_batch",
]
