"""Distances of sets of images by the features of a network; all use of `basis.perception`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from basis.data import load_images
from basis.perception import Gaussian, compare, gaussian_of
from basis.reproduce._context import Context
from basis.reproduce._result_cache import CachedResult

NETWORK = "efficientnet-lite0"
"""What sets of photos are compared by: unlike Inception's weights, a package registry has it."""

ROOMS = ("perception",)


def features(network: Any, images: Tensor) -> Tensor:
    """The features of images under a network, (n, features)."""
    return network.extract(images).features


def reference(ctx: Context, network: Any, data: str, count: int) -> Gaussian:
    """The Gaussian of a network's features of the first training images of a set."""

    def load() -> Tensor:
        return load_images(data, "train", root=ctx.root).images[:count].clone()

    images = ctx.known(("reference", data, count), load)

    def compute() -> CachedResult:
        ctx.on_progress(f"{NETWORK}: features of {data}", 0.0)
        fitted = gaussian_of(features(network, images))
        return CachedResult({"mean": fitted.mean, "covariance": fitted.covariance})

    key = {"network": ctx.object_key(network), "images": images}
    tensors = ctx.cached("reference", key, compute, ROOMS).tensors
    return Gaussian(tensors["mean"], tensors["covariance"], len(images))


def distance_cells(ctx: Context, title: str, sources: Tensor, data: str) -> tuple[str, str]:
    """Distance of separated sources from the training images of a set, and their class score.

    Both as a table shows them.
    """
    network = ctx.feature_network(NETWORK)
    if network is None:
        return (f"{NETWORK} is not installed", "")
    known = reference(ctx, network, data, ctx.count(5_000, least=64))
    images = sources.flatten(0, 1)

    def compute() -> CachedResult:
        ctx.on_progress(f"{NETWORK}: features of {title}", 0.0)
        found = compare(network, images, known)
        score = (found.score.mean, found.score.deviation)
        return CachedResult(values={"distance": found.distance, "score": score})

    key = {
        "network": ctx.object_key(network),
        "images": images,
        "reference": [known.mean, known.covariance, known.count],
    }
    values = ctx.cached("distance", key, compute, ROOMS).values
    mean, deviation = values["score"]
    return (f"{values['distance']:.3g}", f"{mean:.2f} ± {deviation:.2f}")
