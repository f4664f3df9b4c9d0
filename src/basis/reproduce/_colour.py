"""The paper's tables and figures on CIFAR-10: separation and colourisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from basis import BasisError, metrics, mixings, panels
from basis._figures import Table
from basis.data import load_images
from basis.perception import compare
from basis.reproduce._baselines import baseline
from basis.reproduce._pieces import Piece, Workshop, dB, png
from basis.reproduce._shards import Shard

NETWORK = "efficientnet-lite0"
"""What sets of photos are compared by: it can be had from a package registry, Inception's weights cannot."""

PAPER: dict[str, dict[str, str]] = {
    "split": {"average": "FID 39.5", "cifar10": "FID 29.9"},
    "agnostic": {"average": "FID 28.0", "cifar10": "FID 22.1"},
    "grey": {"grey": "FID 68.5", "cifar10": "FID 11.6"},
}
"""What the paper prints; shown beside ours and never as ours."""

PHOTOS: dict[str, Any] = {"sampler": "gibbs"}
"""How photos are separated."""

_PRIORS = (("cifar10", "score network"), ("cifar10-glow", "Glow"))
_NOTE = (
    "The distance is Fréchet's, between Gaussians fitted to the features of EfficientNet-Lite0; the paper's FID is the same with another "
    "network, so the two compare by ratio and not by value. It depends on the number of images, which is the same for all rows."
)


def separation(shop: Workshop, protocol: str) -> Piece:
    """Distances of separated photos from photos, beside "Average" on the same mixtures."""
    kind = "class-agnostic" if protocol == "agnostic" else "animals with vehicles"
    piece = Piece(f"cifar-{protocol}", f"CIFAR-10, {kind}")
    if not _has_data(shop, piece):
        return piece
    printed = PAPER[protocol]
    data = photo_data(shop)
    count = shop.count(1024)
    truth = shop.pairs(count, protocol=protocol, data=data).sources
    average = (truth.sum(dim=1) / 2)[:, None].expand_as(truth)
    rows = [_row(shop, "Average", average, truth, printed["average"])]
    if protocol == "split":
        other = baseline(shop, "nes", protocol, data)
        piece.seconds += other.seconds
        rows.append(_row(shop, other.title, other.sources, truth[: len(other.sources)], ""))
    for name, title in _PRIORS:
        prior = shop.prior(name)
        value = printed.get(name, "")
        if prior is None:
            rows.append((f"BASIS with {title}", "no prior", "", "", "", value))
            continue
        done = shop.separate(prior, count, protocol=protocol, data=data, **PHOTOS)
        piece.spent(done)
        rows.append(_row(shop, f"ours, {title}", done.sources, truth, value))
        shown = min(4, count)
        picture = panels.separation_panel(
            truth[:shown].sum(dim=1) / 2,
            done.sources[:shown],
            mixings.mixture((0.5, 0.5), truth.shape[2]),
            truth=truth[:shown],
            title=f"the first {shown} mixtures, {title}",
        )
        piece.pictures.append((f"Uncurated, {title}", png(picture)))
    header = ("method", "distance", "class score", "PSNR, dB", "mixtures", "paper")
    piece.tables.append(Table(header, rows))
    piece.text.append(_NOTE)
    piece.settings = {"data": data, "protocol": protocol}
    return piece


def colourisation(shop: Workshop) -> Piece:
    """Grey photos coloured again: distances beside the grey ones, and several colourings of the same."""
    piece = Piece("colour", "Colourisation")
    if not _has_data(shop, piece):
        return piece
    data = photo_data(shop)
    count = shop.count(1000, least=4)
    images = load_images(data, "test", root=shop.root)
    truth = images.floats(torch.arange(min(count, len(images))))[:, None]
    mixing = mixings.grey(truth.shape[2])
    observed = mixing(truth)
    dull = observed[:, None].expand_as(truth)
    rows = [_row(shop, "the grey photos", dull, truth, PAPER["grey"]["grey"])]
    for name, title in _PRIORS:
        prior = shop.prior(name)
        value = PAPER["grey"].get(name, "")
        if prior is None:
            rows.append((f"BASIS with {title}", "no prior", "", "", "", value))
            continue
        where = {"task": "grey", "data": data}
        done = shop.undo(prior, truth, mixing, where, **PHOTOS)
        piece.spent(done)
        rows.append(_row(shop, f"ours, {title}", done.sources, truth, value))
        shown = min(4, count)
        picture = panels.separation_panel(
            observed[:shown],
            done.sources[:shown],
            mixing,
            truth=truth[:shown],
            title=f"the first {shown} photos, {title}",
        )
        piece.pictures.append((f"Uncurated, {title}", png(picture)))
        many = shop.draws(prior, truth[:shown], mixing, 5, "colourings", piece)
        looks = torch.cat([dull[:shown], many[:, :, 0], truth[:shown]], dim=1)
        titles = ["grey", *(f"{i + 1}" for i in range(many.shape[1])), "as it was"]
        picture = panels.pictures_panel(looks, titles, title=f"five colourings of each, {title}")
        piece.pictures.append((f"Several colourings, {title}", png(picture)))
    piece.settings = {"data": data}
    header = ("photos", "distance", "class score", "PSNR, dB", "photos", "paper")
    piece.tables.append(Table(header, rows))
    piece.text.append(_NOTE)
    return piece


def photo_data(shop: Workshop) -> str:
    """The set of photos."""
    return "cifar10" if shop.data == "mnist" else shop.data


def _has_data(shop: Workshop, piece: Piece) -> bool:
    try:
        load_images(photo_data(shop), "test", root=shop.root)
    except BasisError as error:
        piece.text.append(f"no data: {error}")
        return False
    return True


def _row(shop: Workshop, title: str, answer: Tensor, truth: Tensor, paper: str) -> tuple[str, ...]:
    psnr = dB(metrics.psnr(answer, truth))
    seen = distances(shop, title, answer, photo_data(shop))
    return (title, *seen, psnr, f"{len(truth):,}", paper)


def distances(shop: Workshop, title: str, answer: Tensor, data: str) -> tuple[str, str]:
    """How far separated sources are from the training images of a set, and their class score, as a table shows them."""
    eyes = shop.eyes(NETWORK)
    if eyes is None:
        return (f"{NETWORK} is not installed", "")
    known = shop.reference(NETWORK, data, shop.count(10_000, least=64))
    images = answer.flatten(0, 1)
    key = {"of": title, "data": data, "sum": images.double().sum().item(), "n": len(images)}

    def make() -> Shard:
        shop.tell(f"{NETWORK} looks at {title}", 0.0)
        told = compare(eyes, images, known)
        score = (told.score.mean, told.score.deviation)
        return Shard(values={"distance": told.distance, "score": score})

    values = shop.shards.get("distance", key | {"reference": known.count}, make).values
    mean, deviation = values["score"]
    return (f"{values['distance']:.3g}", f"{mean:.2f} ± {deviation:.2f}")
