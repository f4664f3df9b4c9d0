"""One prior per source: priors conditioned on classes, and churches mixed with bedrooms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._mix import GROUPS
from basis.errors import BasisError
from basis.lab.cache import CachedResult
from basis.lab.context import Context
from basis.lab.distances import NETWORK, distances, network_key
from basis.lab.report import Section, mean_and_error, percentage
from basis.lab.tables.photos import PHOTOS
from basis.lab.tables.priors import bits
from basis.plots.charts import Table
from basis.priors.prior import Prior
from basis.signals.datasets import load_images

SCENES = ("church", "bedroom")
SIDE = 64
"""Pixels that photos of scenes are scaled to."""


def in_order(estimate: Tensor, truth: Tensor) -> Tensor:
    """Which mixtures have their two sources closer to the truth in this order than swapped."""
    same = (estimate - truth).square().flatten(1).sum(dim=1)
    swapped = (estimate.flip(1) - truth).square().flatten(1).sum(dim=1)
    return same < swapped


def class_priors(ctx: Context, section: Section) -> None:
    """The same class-split mixtures with an unconditional prior and with one prior per source."""
    rows: list[tuple[str, ...]] = []
    gains = []
    header = (
        "pairs", "PSNR, dB", "sources in order", "distance", "kernel distance", "class score",
        "mixtures",
    )  # fmt: skip
    for name, data, alphas, settings in (
        ("mnist-classes", ctx.data, (1.0, 1.0), {"method": "balanced"}),
        ("cifar10", ctx.photos, (0.5, 0.5), PHOTOS),
    ):
        prior = ctx.prior(name)
        if prior is None or not prior.classes:
            rows.append((f"{data}: {name}", "no prior", *("",) * (len(header) - 2)))
            continue
        try:
            truth = ctx.pairs(ctx.count(256), protocol="split", data=data).sources
        except BasisError:
            continue  # no data, or no classes
        conditional = [prior.condition(*group) for group in GROUPS[data]]
        mixing = mixings.mixture(alphas, truth.shape[2])
        trivial = metrics.psnr(
            truth.mean(dim=1, keepdim=True).expand_as(truth), truth, permute=True
        )
        psnr = []
        for title, used in (("unconditional", prior), ("conditioned on the classes", conditional)):
            done = ctx.separate(used, truth, mixing, **settings)
            section.add_cost(done)
            psnr.append(done.psnr)
            found = None
            if name == "cifar10":
                found = distances(ctx, f"{data}, {title}", done.sources, data)
            cells = ("", "", "")
            if found is not None:
                cells = (f"{found.frechet:.3g}", found.kernel_cell(), found.score_cell())
            order = percentage(in_order(done.sources, truth))
            quality = (f"{data}, {title}", mean_and_error(done.psnr), order)
            rows.append((*quality, *cells, f"{len(truth):,}"))
        over = [mean_and_error(p - trivial) for p in psnr]
        gains.append(
            f"On {data} the unconditional prior gains {over[0]} dB over mixture / 2, the priors "
            f"conditioned on the classes {over[1]} dB; the difference is "
            f"{mean_and_error(psnr[1] - psnr[0])} dB."
        )
    section.tables.append(Table(header, rows))
    section.text.append(
        "PSNR is by the better order; “sources in order” is the fraction of mixtures whose sources "
        "come out in their true order, which is half by chance for the unconditional prior. "
        "Distances are from the test photos; the kernel distance is in thousandths. Gains are "
        "mixture by mixture: " + " ".join(gains)
    )


def scenes(ctx: Context, section: Section) -> None:
    """Churches mixed with bedrooms: quality, and which source is in which component."""
    try:
        photos = [scene_photos(ctx, name, "test") for name in SCENES]
    except BasisError as error:
        section.text.append(f"no data: {error}")
        return
    count = min(ctx.count(60), *map(len, photos))
    truth = torch.stack([p[:count] for p in photos], dim=1)
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    classifier = scene_classifier(ctx)
    flows = _all_priors(ctx, [f"{name}-glow" for name in SCENES])
    average = mixing(truth)[:, None].expand_as(truth)
    rows: list[tuple[str, ...]]
    rows = [
        (
            "mixture / 2",
            mean_and_error(metrics.psnr(average, truth, permute=True)),
            "",
            "",
            "",
            f"{count}",
        )
    ]
    costs = {} if flows is None else {"unmixed photos": _bits_of_all(flows, truth, ctx.seed)}
    for ending, title in (("", "score networks"), ("-glow", "flows")):
        priors = _all_priors(ctx, [name + ending for name in SCENES])
        if priors is None:
            rows.append((title, "no prior", "", "", "", ""))
            continue
        done = ctx.separate(priors, truth, mixing, **PHOTOS)
        section.add_cost(done)
        likely = ""
        if flows is not None:
            cost = costs[f"separated with {title}"] = _bits_of_all(flows, done.sources, ctx.seed)
            likely = percentage(cost[0, 0] + cost[1, 1] < cost[0, 1] + cost[1, 0])
        own = "" if classifier is None else percentage(classifier.in_order(done.sources))
        nearer = percentage(in_order(done.sources, truth))
        rows.append((title, mean_and_error(done.psnr), nearer, own, likely, f"{count}"))
        shown = min(6, count)
        section.add_panel(
            f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing,
            title=f"the first {shown} mixtures, {title}", cell=112,
        )  # fmt: skip
    header = (
        "priors", "PSNR, dB", "closer to its own photo", "by a classifier", "by likelihood",
        "mixtures",
    )  # fmt: skip
    section.tables.append(Table(header, rows))
    section.text.append(
        "Fractions of mixtures whose sources are in their own component: no permutation is tried, "
        "the first prior gives the church and the second the bedroom. By a classifier: the first "
        "source looks more like a church than the second does. By likelihood: the two flows prefer "
        "this order. " + ("" if classifier is None else classifier.description)
    )
    if flows is not None:
        columns = [f"{name} under {flow.name}" for name in SCENES for flow in flows]
        head = (f"bits per dimension, p_σ at σ = {flows[0].sigma_min:g}", *columns)
        section.tables.append(
            Table(
                head,
                [
                    (title, *(mean_and_error(cost[f, s], 3) for s in range(2) for f in range(2)))
                    for title, cost in costs.items()
                ],
            )
        )


def _all_priors(ctx: Context, names: Sequence[str]) -> list[Prior] | None:
    """All of these priors, or None if one is missing."""
    found = [prior for prior in map(ctx.prior, names) if prior is not None]
    return found if len(found) == len(names) else None


def _bits_of_all(flows: Sequence[Prior], sources: Tensor, seed: int) -> Tensor:
    """Bits per dimension of each source (second index) under each flow (first): (2, 2, count)."""
    rows = [[bits(f, x, f.sigma_min, seed=seed) for x in sources.unbind(1)] for f in flows]
    return torch.stack([torch.stack(row) for row in rows])


def scene_photos(ctx: Context, name: str, split: Literal["train", "test"]) -> Tensor:
    """Photos of one kind in [0, 1]; half of the digits if the context has only the sample."""
    if ctx.data == "sample":
        images = load_images("sample").only(GROUPS["sample"][SCENES.index(name)])
    else:
        images = load_images(f"scenes/{name}", split, root=ctx.root, size=SIDE, channels=3)
    return images.floats(slice(ctx.count(1000, at_least=24)))


@dataclass(frozen=True)
class SceneClassifier:
    """Tells churches from bedrooms by a linear layer on features.

    Attributes:
        network: The feature network.
        direction: Weights of the linear layer, (features,).
        description: A sentence on its accuracy.
    """

    network: Any
    direction: Tensor
    description: str = ""

    def evidence(self, images: Tensor) -> Tensor:
        """How much an image looks like the first kind rather than the second, (n,)."""
        return _unit_features(self.network, images) @ self.direction

    def in_order(self, sources: Tensor) -> Tensor:
        """Which mixtures have a first source that looks more like a church than the second."""
        first, second = (self.evidence(x) for x in sources.unbind(1))
        return first > second


def scene_classifier(ctx: Context) -> SceneClassifier | None:
    """The classifier, fitted to training photos; None if its network is not installed."""
    network = ctx.feature_network(NETWORK)
    if network is None:
        return None
    photos = [scene_photos(ctx, name, "train") for name in SCENES]

    def compute() -> CachedResult:
        ctx.on_progress(f"{NETWORK}: features of scenes", 0.0)
        found = [_unit_features(network, x) for x in photos]
        # Ridge regression, both kinds weighted equally; comparing two images needs no intercept.
        centered = [f - f.mean(dim=0) for f in found]
        within = torch.stack([(c.T @ c) / len(c) for c in centered]).mean(dim=0)
        ridge = 0.1 * within.trace() / len(within) * torch.eye(len(within))
        direction = torch.linalg.solve(within + ridge, found[0].mean(dim=0) - found[1].mean(dim=0))
        return CachedResult({"direction": direction})

    key = {"network": network_key(ctx, network), "photos": photos}
    direction = ctx.cached("scene-classifier", key, compute).tensors["direction"]
    classifier = SceneClassifier(network, direction)
    first, second = (classifier.evidence(scene_photos(ctx, name, "test")) for name in SCENES)
    right = (first[:, None] > second).float().mean().item()
    description = (
        f"The classifier ({NETWORK} with a linear layer fitted to the training photos) puts "
        f"{right:.1%} of all pairs of unmixed test photos in the right order."
    )
    return SceneClassifier(network, direction, description)


def _unit_features(network: Any, images: Tensor) -> Tensor:
    """Features scaled to norm 1, (n, d)."""
    rows = network.extract(images).features
    return rows / rows.norm(dim=1, keepdim=True)
