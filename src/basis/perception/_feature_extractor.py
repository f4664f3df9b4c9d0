"""A network as a feature extractor: images to feature vectors and class probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from basis._errors import BasisError


@dataclass(frozen=True)
class Features:
    """Features (n, d) and class probabilities (n, classes) of a set of images."""

    features: Tensor
    probabilities: Tensor


class FeatureExtractor:
    """A network whose features and class probabilities compare sets of images.

    Args:
        name: What its distances are called by.
        module: Images in [0, 1], (batch, channels, height, width), to features and class logits.
        channels: The channels that the network takes. Grey images are repeated for a network of
            colour images; colour images are refused by a network of grey ones.
        batch: Images at once.
        side: The side of the images that the network takes; None for any.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        channels: int,
        batch: int = 64,
        side: int | None = None,
    ) -> None:
        self.name, self.channels, self.batch, self.side = name, channels, batch, side
        self.module = module.eval().requires_grad_(False)

    @property
    def distance_name(self) -> str:
        """What the Fréchet distance by this network is called: FID for Inception alone."""
        return "FID" if self.name == "inception" else f"Fréchet distance ({self.name})"

    @property
    def score_name(self) -> str:
        """What the score by this network is called: Inception Score for Inception alone."""
        return "Inception Score" if self.name == "inception" else f"class score ({self.name})"

    def extract(self, images: Tensor) -> Features:
        """Features and class probabilities of images.

        Args:
            images: (n, channels, height, width), uint8 or float in [0, 1].
        """
        features, probabilities = [], []
        with torch.inference_mode():
            for x in images.split(self.batch):
                x = x.float().div(255) if x.dtype == torch.uint8 else x.float().clamp(0, 1)
                f, logits = self.module(self._fit_channels(x))
                features.append(f)
                probabilities.append(logits.softmax(dim=1))
        return Features(torch.cat(features), torch.cat(probabilities))

    def _fit_channels(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise BasisError(
                f"{self.name} takes pictures (n, channels, height, width), not {tuple(x.shape)}"
            )
        if x.shape[1] in (1, self.channels):
            self._check_side(x)
        if x.shape[1] == self.channels:
            return x
        if x.shape[1] == 1:
            return x.expand(-1, self.channels, -1, -1)
        raise BasisError(
            f"{self.name} takes images of {self.channels} channel(s), not {x.shape[1]}; "
            "networks of colour images are efficientnet-lite0 and inception (--network)"
        )

    def _check_side(self, x: Tensor) -> None:
        if self.side is not None and tuple(x.shape[2:]) != (self.side, self.side):
            raise BasisError(
                f"{self.name} takes images of {self.side}x{self.side} pixels, not "
                f"{x.shape[3]}x{x.shape[2]}; --size {self.side} cuts and scales them"
            )
