"""The paper's tables and figures on CIFAR-10: separation and colourisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from basis import BasisError, metrics, mixings, panels
from basis._figures import Table
from basis.data import load_images
from basis.mixings import Mixing
from basis.perception import compare
from basis.priors import Prior
from basis.reproduce._baselines import baseline
from basis.reproduce._pieces import Piece, Workshop, dB, png
from basis.reproduce._shards import Shard
from basis.separation import colouring

NETWORK = "efficientnet-lite0"
"""What sets of photos are compared by: it can be had from a package registry, Inception's weights cannot."""

PAPER: dict[str, dict[str, str]] = {
    "split": {"plain": "FID 39.5", "cifar10": "FID 29.9"},
    "agnostic": {"plain": "FID 28.0", "cifar10": "FID 22.1"},
    "grey": {"plain": "FID 68.5", "cifar10": "FID 11.6"},
}
"""What the paper prints; shown beside ours and never as ours."""

PHOTOS: dict[str, Any] = {"effort": "fast"}
"""How photos are separated."""

_PRIORS = (("cifar10", "score network", 1024), ("cifar10-glow", "Glow", 32))
"""Names, titles, and mixtures of the full version: a flow's gradient costs far more than a score."""

_NOTE = (
    "The distance is Fréchet's, between Gaussians fitted to the features of EfficientNet-Lite0; the paper's FID is the same with another "
    "network, so the two compare by ratio and not by value. It falls as the images grow in number: compare rows of one number."
)


def separation(shop: Workshop, protocol: str) -> Piece:
    """Distances of separated photos from photos, beside "Average" on the same mixtures."""
    kind = "class-agnostic" if protocol == "agnostic" else "animals with vehicles"
    piece = Piece(f"cifar-{protocol}", f"CIFAR-10, {kind}")
    if not _has_data(shop, piece):
        return piece
    data = photo_data(shop)
    truth = shop.pairs(shop.count(1024), protocol=protocol, data=data).sources
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    where = {"k": 2, "protocol": protocol, "photos": data}
    rows = [_row(shop, "the photos themselves", truth, truth)]
    if protocol == "split":
        other = baseline(shop, "nes", protocol, data)
        piece.seconds += other.seconds
        rows.append(_row(shop, other.title, other.sources, truth[: len(other.sources)]))
    average = mixing(truth)[:, None].expand_as(truth)
    used = _with_priors(
        shop, piece, rows, ("Average", average), truth, mixing, where, PAPER[protocol],
        lambda prior: PHOTOS,
    )  # fmt: skip
    for prior, title in used[:1]:
        _drawn_again(shop, piece, prior, title, truth[: shop.count(32)], mixing)
    piece.settings = {"data": data, "protocol": protocol}
    return piece


def _drawn_again(
    shop: Workshop, piece: Piece, prior: Prior, title: str, truth: Tensor, mixing: Mixing
) -> None:
    """Adds several draws from the posterior of each mixture: how far they differ, and what their mean is worth."""
    count, draws = len(truth), 8
    many = shop.draws(prior, truth, mixing, draws, f"{piece.name}-draws", piece)
    many = torch.stack([metrics.reorder(d, many[:, 0]) for d in many.unbind(1)], dim=1)
    each = torch.stack([metrics.psnr(d, truth) for d in many.unbind(1)])
    rows = [
        ("one draw", dB(each.mean(dim=0)), f"{count}"),
        (f"the mean of {draws}", dB(metrics.psnr(many.mean(dim=1), truth)), f"{count}"),
        (f"the nearest of {draws} to the truth", dB(each.amax(dim=0)), f"{count}"),
    ]
    piece.tables.append(Table(("draws from the posterior (gibbs)", "PSNR, dB", "mixtures"), rows))
    spread = metrics.rms(many - many.mean(dim=1, keepdim=True)).mean().item()
    piece.text.append(
        f"{draws} draws of one mixture differ from their mean by {spread:.3f} rms; all of them add up to the mixture."
    )
    shown, seen = min(4, count), 4
    looks = [mixing(truth)[:shown, None], *many[:shown, :seen].unbind(1), truth[:shown]]
    titles = ["mixture", *(w for i in range(seen) for w in (f"draw {i + 1}", "")), "truth", ""]
    picture = panels.pictures_panel(
        torch.cat(looks, dim=1), titles, title=f"{seen} draws of each, {title}", cell=84
    )
    piece.pictures.append((f"Several separations of one mixture, {title}", png(picture)))


def colourisation(shop: Workshop) -> Piece:
    """Grey photos coloured again: distances beside the grey ones, and several colourings of the same."""
    piece = Piece("colour", "Colourisation")
    if not _has_data(shop, piece):
        return piece
    data = photo_data(shop)
    images = load_images(data, "test", root=shop.root)
    truth = images.floats(torch.arange(min(shop.count(1024), len(images))))[:, None]
    mixing = mixings.grey(truth.shape[2])
    grey = mixing(truth)[:, None].expand_as(truth)
    rows = [_row(shop, "the photos themselves", truth, truth)]
    where = {"task": "grey", "photos": data}
    used = _with_priors(
        shop, piece, rows, ("the grey photos", grey), truth, mixing, where, PAPER["grey"], colouring
    )
    shown = min(4, len(truth))
    for prior, title in used:
        many = shop.draws(prior, truth[:shown], mixing, 5, "colourings", piece, **colouring(prior))
        looks = torch.cat([grey[:shown], many[:, :, 0], truth[:shown]], dim=1)
        titles = ["grey", *(f"{i + 1}" for i in range(many.shape[1])), "as it was"]
        picture = panels.pictures_panel(looks, titles, title=f"five colourings of each, {title}")
        piece.pictures.append((f"Several colourings, {title}", png(picture)))
    piece.settings = {"data": data}
    return piece


def _with_priors(
    shop: Workshop,
    piece: Piece,
    rows: list[tuple[str, ...]],
    plain: tuple[str, Tensor],
    truth: Tensor,
    mixing: Mixing,
    where: dict[str, Any],
    printed: dict[str, str],
    settings: Callable[[Prior], dict[str, Any]],
) -> list[tuple[Prior, str]]:
    """Adds the rows and pictures of every prior to a piece, each beside what there is without one; the priors it found.

    Args:
        rows: The rows that come before.
        plain: Name and images of what a prior has to beat.
        where: What names the mixtures in a shard's name.
        printed: The paper's figures.
        settings: How mixtures are undone with a prior.
    """
    used, residual, before = [], 0.0, 0
    for name, title, full in _PRIORS:
        count = min(shop.count(full), len(truth))
        if count != before:
            paper = "" if before else printed.get("plain", "")
            rows.append(_row(shop, plain[0], plain[1][:count], truth[:count], paper))
            before = count
        prior, value = shop.prior(name), printed.get(name, "")
        if prior is None:
            rows.append((f"ours, {title}", "no prior", "", "", "", value))
            continue
        used.append((prior, title))
        done = shop.undo(prior, truth[:count], mixing, where, **settings(prior))
        piece.spent(done)
        residual = max(residual, done.residual.max().item())
        rows.append(_row(shop, f"ours, {title}", done.sources, truth[:count], value))
        shown = min(8, count)
        words = f"the first {shown}, {title}"
        piece.show(f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing, title=words)
    header = ("method", "distance", "class score", "PSNR, dB", "mixtures", "paper")
    piece.tables.append(Table(header, rows))
    exact = metrics.residual_steps(torch.tensor(residual)).item()
    piece.text.append(
        f"{_NOTE} The largest residual of any mixture is {exact:.2f} of an 8-bit step."
    )
    return used


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


def _row(
    shop: Workshop, title: str, answer: Tensor, truth: Tensor, paper: str = ""
) -> tuple[str, ...]:
    psnr = "" if answer is truth else dB(metrics.psnr(answer, truth))
    seen = distances(shop, title, answer, photo_data(shop))
    return (title, *seen, psnr, f"{len(truth):,}", paper)


def distances(shop: Workshop, title: str, answer: Tensor, data: str) -> tuple[str, str]:
    """How far separated sources are from the training images of a set, and their class score, as a table shows them."""
    eyes = shop.eyes(NETWORK)
    if eyes is None:
        return (f"{NETWORK} is not installed", "")
    known = shop.reference(NETWORK, data, shop.count(5_000, least=64))
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
