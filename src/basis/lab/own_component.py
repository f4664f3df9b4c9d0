"""Which source landed in which component, where each source has a prior of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from basis._mix import GROUPS
from basis.lab.context import Context
from basis.lab.feature_distance import NETWORK, features
from basis.lab.result_cache import CachedResult
from basis.signals.datasets import load_images

SCENES = ("church", "bedroom")
SIDE = 64
"""Pixels that photos of scenes are scaled to."""


def in_order(estimate: Tensor, truth: Tensor) -> Tensor:
    """Which mixtures have their two sources nearer to the truth in this order than the other."""
    same = (estimate - truth).square().flatten(1).sum(dim=1)
    other = (estimate.flip(1) - truth).square().flatten(1).sum(dim=1)
    return same < other


def scene_photos(ctx: Context, name: str, split: Literal["train", "test"]) -> Tensor:
    """Photos of one kind in [0, 1]; half of the digits where the context has the sample alone."""
    if ctx.data == "sample":
        images = load_images("sample").only(GROUPS["sample"][SCENES.index(name)])
    else:
        images = load_images(f"scenes/{name}", split, root=ctx.root, size=SIDE, channels=3)
    return images.floats(slice(ctx.count(1000, least=24)))


@dataclass(frozen=True)
class SceneClassifier:
    """Tells churches from bedrooms by a linear layer on the features of a network of photos.

    Attributes:
        network: The feature network.
        direction: Weights of the linear layer, (features,).
        description: A sentence on how good it is.
    """

    network: Any
    direction: Tensor
    description: str = ""

    def evidence(self, images: Tensor) -> Tensor:
        """How much an image looks like the first kind rather than the second, (n,)."""
        return _unit(features(self.network, images)) @ self.direction

    def in_order(self, sources: Tensor) -> Tensor:
        """Which mixtures have a first source that looks more like a church than the second."""
        first, second = (self.evidence(x) for x in sources.unbind(1))
        return first > second


def scene_classifier(ctx: Context) -> SceneClassifier | None:
    """The classifier, fitted to training photos; None where its network is not installed."""
    network = ctx.feature_network(NETWORK)
    if network is None:
        return None
    photos = [scene_photos(ctx, name, "train") for name in SCENES]

    def compute() -> CachedResult:
        ctx.on_progress(f"{NETWORK}: features of scenes", 0.0)
        seen = [_unit(features(network, x)) for x in photos]
        # Least squares with a ridge, both kinds weighted alike: to compare two images no intercept
        # is needed.
        centred = [f - f.mean(dim=0) for f in seen]
        within = torch.stack([(c.T @ c) / len(c) for c in centred]).mean(dim=0)
        ridge = 0.1 * within.trace() / len(within) * torch.eye(len(within))
        direction = torch.linalg.solve(within + ridge, seen[0].mean(dim=0) - seen[1].mean(dim=0))
        return CachedResult({"direction": direction})

    key = {"network": ctx.object_key(network), "photos": photos}
    direction = ctx.cached("scene-classifier", key, compute, ("perception",)).tensors["direction"]
    classifier = SceneClassifier(network, direction)
    first, second = (classifier.evidence(scene_photos(ctx, name, "test")) for name in SCENES)
    right = (first[:, None] > second).float().mean().item()
    description = (
        f"The classifier ({NETWORK} with a linear layer fitted to the training photos) puts "
        f"{right:.1%} of all pairs of unmixed test photos in the right order."
    )
    return SceneClassifier(network, direction, description)


def _unit(rows: Tensor) -> Tensor:
    """Features scaled to norm one."""
    return rows / rows.norm(dim=1, keepdim=True)
