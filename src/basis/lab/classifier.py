"""A small classifier, so that sets like digits have features and class probabilities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Classifier(nn.Module):
    """Images in [0, 1] to features and class logits.

    Args:
        channels, side: Of the images; the side divisible by 4.
        classes: Number of classes.
        width: Channels of the first layer.
        features: Length of the feature vector.

    Shapes:
        x: (batch, channels, side, side).
        returns: (batch, features), (batch, classes).
    """

    def __init__(
        self,
        channels: int = 1,
        side: int = 28,
        classes: int = 10,
        width: int = 24,
        features: int = 64,
    ) -> None:
        super().__init__()
        if side % 4:
            raise ValueError(f"the side must be divisible by 4, not {side}")
        self.config = {
            "channels": channels,
            "side": side,
            "classes": classes,
            "width": width,
            "features": features,
        }
        self.conv0 = nn.Conv2d(4 * channels, width, 3, padding=1)
        self.conv1 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.conv2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.dense = nn.Linear(2 * width * (side // 4) ** 2, features)
        self.last = nn.Linear(features, classes)

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
    progress: Callable[[float], None] = lambda share: None,
) -> Classifier:
    """Trains a classifier on labelled images, which are shifted by up to two pixels at random.

    Args:
        images: uint8, (n, channels, side, side).
        labels: (n,).
        epochs: Times each image is seen.
        progress: Called after each step with the share of the training that is done.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Classifier(images.shape[1], images.shape[2], int(labels.max()) + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0.01)
    steps = max(2, int(epochs * len(images) / batch))
    for step in range(steps):
        pick = torch.randint(len(images), (batch,), generator=generator)
        move = torch.randint(-2, 3, (2,), generator=generator).tolist()
        x = images[pick].float().div(255).roll(move, dims=(2, 3))
        loss = F.cross_entropy(model(x)[1], labels[pick], label_smoothing=0.05)
        optimizer.param_groups[0]["lr"] = lr * min(1.0, 2 * (1 - step / steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress((step + 1) / steps)
    return model.eval().requires_grad_(False)


def accuracy(model: Classifier, images: Tensor, labels: Tensor) -> float:
    """The share of images whose class the classifier names correctly.

    Args:
        model: The classifier.
        images: uint8, (n, channels, height, width).
        labels: The true classes, int64 (n,).
    """
    with torch.inference_mode():
        right = [
            (model(x.float().div(255))[1].argmax(dim=1) == y).sum()
            for x, y in zip(images.split(1000), labels.split(1000), strict=True)
        ]
    return torch.stack(right).sum().item() / len(images)
