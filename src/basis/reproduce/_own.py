"""A prior for each source: churches with bedrooms, and the halves of class-split pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from basis import BasisError, metrics, mixings
from basis._figures import Table
from basis.data import load_images
from basis.data._places import Split
from basis.pairs import GROUPS
from basis.perception import Eyes
from basis.priors import Prior
from basis.reproduce._colour import NETWORK, PHOTOS, distances, photo_data
from basis.reproduce._pieces import Piece, Workshop, dB
from basis.reproduce._shards import Shard
from basis.studies import bits

SCENES = ("church", "bedroom")
SIDE = 64

_HALVES = {"mnist": ("mnist-low", "mnist-high"), "cifar10": ("cifar10-animals", "cifar10-vehicles")}
"""The priors of the two groups of classes, which are trained from the prior of all."""


def class_priors(shop: Workshop) -> Piece:
    """Class-split pairs with one prior for both sources, and with one for each."""
    piece = Piece("class-priors", "A prior for each half of the classes")
    rows, told = [], []
    for data, names in _HALVES.items():
        photos = data == "cifar10"
        data = photo_data(shop) if photos else shop.data
        both, own = shop.prior("cifar10" if photos else "mnist"), _all(shop, names)
        if both is None or own is None:
            rows.append((f"{data}: {names[0]} and {names[1]}", "no prior", "", "", "", ""))
            continue
        count = shop.count(256)
        truth = _pairs(shop, count, data)
        if truth is None:
            continue
        mixing = mixings.mixture((0.5, 0.5) if photos else (1.0, 1.0), truth.shape[2])
        psnr = []
        for title, used in (("one prior", both), ("a prior for each", own)):
            # As in the tables of class-split pairs, so that their separations serve here.
            where = {"k": 2, "protocol": "split"} | ({"photos": data} if photos else {})
            settings = PHOTOS if photos else {"effort": "balanced"}
            done = shop.undo(used, truth, mixing, where, **settings)
            piece.spent(done)
            psnr.append(done.psnr)
            seen = distances(shop, f"{data}, {title}", done.sources, data) if photos else ("", "")
            order = _in_order(done.sources, truth)
            rows.append(
                (f"{data}, {title}", dB(done.psnr), _share(order), *seen, f"{len(truth):,}")
            )
        told.append(
            f"A prior for each changes PSNR on {data} by {dB(psnr[1] - psnr[0])} dB, mixture by mixture."
        )
    header = ("pairs", "PSNR, dB", "sources in order", "distance", "class score", "mixtures")
    piece.tables.append(Table(header, rows))
    piece.text.append(
        "The same class-split mixtures. PSNR is by the better order; “sources in order” is the share of mixtures in which the sources "
        "come out in the order they were put in, for which one prior can only guess: half. "
        + " ".join(told)
    )
    return piece


def scenes(shop: Workshop) -> Piece:
    """Churches laid over bedrooms: priors that differ, and sources that know their place."""
    piece = Piece("scenes", "A church over a bedroom")
    try:
        photos = [_photos(shop, name, "test") for name in SCENES]
    except BasisError as error:
        piece.text.append(f"no data: {error}")
        return piece
    count = min(shop.count(60), *map(len, photos))
    truth = torch.stack([p[:count] for p in photos], dim=1)
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    judge = _judge(shop)
    flows = _all(shop, [f"{name}-glow" for name in SCENES])
    average = mixing(truth)[:, None].expand_as(truth)
    rows = [("Average", dB(metrics.psnr(average, truth)), "", "", "", f"{count}")]
    costs = {} if flows is None else {"photos as they are": _bits(flows, truth, shop.seed)}
    for ending, title in (("", "score networks"), ("-glow", "flows")):
        priors = _all(shop, [name + ending for name in SCENES])
        if priors is None:
            rows.append((title, "no prior", "", "", "", ""))
            continue
        where = {"scenes": SCENES, "side": truth.shape[-1]}
        done = shop.undo(priors, truth, mixing, where, **PHOTOS)
        piece.spent(done)
        likely = ""
        if flows is not None:
            cost = costs[f"separated with {title}"] = _bits(flows, done.sources, shop.seed)
            likely = _share(cost[0, 0] + cost[1, 1] < cost[0, 1] + cost[1, 0])
        rows.append(
            (
                title,
                dB(done.psnr),
                _share(_in_order(done.sources, truth)),
                "" if judge is None else _share(_own_by_classifier(judge, done.sources)),
                likely,
                f"{count}",
            )
        )
        shown = min(6, count)
        looks: dict[str, Any] = {"title": f"the first {shown} mixtures, {title}", "cell": 112}
        piece.show(f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing, **looks)
    header = (
        "priors", "PSNR, dB", "nearer to its own photo", "by a classifier", "by likelihood",
        "mixtures",
    )  # fmt: skip
    piece.tables.append(Table(header, rows))
    piece.text.append(
        "Shares of mixtures whose sources land in their own component: no permutation is tried, the first prior gives the church and the "
        "second the bedroom. By a classifier: the first source looks more like a church than the second does. By likelihood: "
        "the two flows prefer this order to the other. " + ("" if judge is None else judge.words)
    )
    if flows is not None:
        piece.tables.append(_bits_table(flows, costs))
    return piece


def _all(shop: Workshop, names: Sequence[str]) -> list[Prior] | None:
    """All of these priors, or None where one is missing."""
    priors = [shop.prior(name) for name in names]
    return None if None in priors else [p for p in priors if p is not None]


def _pairs(shop: Workshop, count: int, data: str) -> Tensor | None:
    try:
        return shop.pairs(count, protocol="split", data=data).sources
    except BasisError:
        return None


def _photos(shop: Workshop, name: str, split: Split) -> Tensor:
    """Photos of one kind in [0, 1]; a half of the digits stands in where the shop has a sample alone."""
    if shop.data == "sample":
        images = load_images("sample").only(GROUPS["sample"][SCENES.index(name)])
    else:
        images = load_images(f"scenes/{name}", split, root=shop.root, size=SIDE, channels=3)
    return images.images[: shop.count(1000, least=24)].float().div(255)


@dataclass(frozen=True)
class _Judge:
    """Tells churches from bedrooms: a linear classifier on the features of a network of ordinary photos."""

    eyes: Eyes
    direction: Tensor
    words: str

    def evidence(self, images: Tensor) -> Tensor:
        """How much an image looks like the first kind rather than the second, (n,)."""
        return _unit(self.eyes.look(images).features) @ self.direction


def _judge(shop: Workshop) -> _Judge | None:
    eyes = shop.eyes(NETWORK)
    if eyes is None:
        return None

    def make() -> Shard:
        shop.tell(f"{NETWORK} looks at scenes", 0.0)
        seen = [_unit(eyes.look(x).features) for x in photos]
        # Least squares with a ridge, both kinds weighted alike: no intercept is needed to compare two images.
        centred = [f - f.mean(dim=0) for f in seen]
        within = torch.stack([(c.T @ c) / len(c) for c in centred]).mean(dim=0)
        ridge = 0.1 * within.trace() / len(within) * torch.eye(len(within))
        direction = torch.linalg.solve(within + ridge, seen[0].mean(dim=0) - seen[1].mean(dim=0))
        return Shard({"direction": direction})

    photos = [_photos(shop, name, "train") for name in SCENES]
    settings = {"network": NETWORK, "data": shop.data, "photos": [len(x) for x in photos]}
    direction = shop.shards.get("scene-judge", settings, make)
    judge = _Judge(eyes, direction.tensors["direction"], "")
    first, second = (judge.evidence(_photos(shop, name, "test")) for name in SCENES)
    right = (first[:, None] > second).float().mean().item()
    words = (
        f"The classifier ({NETWORK} with a linear layer fitted to the training photos) puts {right:.1%} of all pairs of unmixed "
        "test photos in the right order."
    )
    return replace(judge, words=words)


def _unit(features: Tensor) -> Tensor:
    return features / features.norm(dim=1, keepdim=True)


def _own_by_classifier(judge: _Judge, sources: Tensor) -> Tensor:
    first, second = (judge.evidence(x) for x in sources.unbind(1))
    return first > second


def _bits(flows: Sequence[Prior], sources: Tensor, seed: int) -> Tensor:
    """Bits per dimension of each source (second index) under each flow (first): (2, 2, count)."""
    return torch.stack(
        [
            torch.stack([bits(flow, x, flow.sigma_min, seed=seed) for x in sources.unbind(1)])
            for flow in flows
        ]
    )


def _bits_table(flows: Sequence[Prior], costs: dict[str, Tensor]) -> Table:
    """Every set under every flow, as the paper's table of sample likelihoods."""
    rows = [
        (words, *(_mean(cost[f, s]) for s in range(2) for f in range(2)))
        for words, cost in costs.items()
    ]
    columns = [f"{name} under {flow.name}" for name in SCENES for flow in flows]
    return Table((f"bits per dimension, p_σ at σ = {flows[0].sigma_min:g}", *columns), rows)


def _mean(values: Tensor) -> str:
    told = metrics.summarise(values)
    return f"{told.mean:.3f} ± {told.stderr:.3f}"


def _share(found: Tensor) -> str:
    return f"{found.float().mean().item():.0%}"


def _in_order(estimate: Tensor, truth: Tensor) -> Tensor:
    """Which mixtures have their two sources nearer to the truth in this order than in the other."""
    same = (estimate - truth).square().flatten(1).sum(dim=1)
    other = (estimate.flip(1) - truth).square().flatten(1).sum(dim=1)
    return same < other
