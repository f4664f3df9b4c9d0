"""Data: sets of images or other signals, pictures and mixtures, read from files into tensors.

Pixels are in [0, 1] once they are floats. Names are resolved at first use, so that importing this
package loads neither torch nor Pillow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis.data._catalogue import CatalogueEntry, catalogue
    from basis.data._download import PUBLISHED, Published, checksum, download, fetch
    from basis.data._imageset import ImageSet
    from basis.data._listing import find_pictures
    from basis.data._load import load_images
    from basis.data._mixture import MixtureFile, read_array, read_mixture, write_mixture
    from basis.data._observation import (
        Observed,
        fit_observation,
        from_numpy,
        open_mixtures,
        read_observation,
    )
    from basis.data._pictures import MOST_PIXELS, read_image
    from basis.data._places import NAMES, Split, data_root

__all__ = [
    "MOST_PIXELS",
    "NAMES",
    "PUBLISHED",
    "CatalogueEntry",
    "ImageSet",
    "MixtureFile",
    "Observed",
    "Published",
    "Split",
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
    "read_array",
    "read_image",
    "read_mixture",
    "read_observation",
    "write_mixture",
]

_HOME = {
    "MOST_PIXELS": "_pictures",
    "NAMES": "_places",
    "PUBLISHED": "_download",
    "CatalogueEntry": "_catalogue",
    "ImageSet": "_imageset",
    "MixtureFile": "_mixture",
    "Observed": "_observation",
    "Published": "_download",
    "Split": "_places",
    "catalogue": "_catalogue",
    "checksum": "_download",
    "data_root": "_places",
    "download": "_download",
    "fetch": "_download",
    "find_pictures": "_listing",
    "fit_observation": "_observation",
    "from_numpy": "_observation",
    "load_images": "_load",
    "open_mixtures": "_observation",
    "read_array": "_mixture",
    "read_image": "_pictures",
    "read_mixture": "_mixture",
    "read_observation": "_observation",
    "write_mixture": "_mixture",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
