"""What a reproduced table or figure is made of, and what it needs to be made."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from basis import BasisError, metrics, mixings, panels, separate
from basis._figures import Table
from basis.data import load_images
from basis.mixings import Mixing
from basis.pairs import Pairs, draw_pairs
from basis.perception import Eyes, Gaussian, gaussian_of, load_network
from basis.priors import Prior
from basis.reproduce._shards import Shard, Shards
from basis.store import list_priors, load_prior

if TYPE_CHECKING:
    from PIL import Image

    from basis.separation import Progress

BATCH = 32
"""Mixtures in a shard: what an interruption can cost at most."""


@dataclass
class Piece:
    """One table or figure of the paper, made again."""

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[tuple[str, bytes]] = field(default_factory=list)
    """captions and PNG files"""
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    evaluations: int = 0

    def show(
        self, caption: str, truth: Tensor, sources: Tensor, mixing: Mixing, **looks: Any
    ) -> None:
        """Adds a picture of separations, a row each, with the truth beside."""
        looks = {"cell": 84} | looks
        panel = panels.separation_panel(mixing(truth), sources, mixing, truth=truth, **looks)
        self.pictures.append((caption, png(panel)))

    def spent(self, done: Separated) -> None:
        """Adds what a separation took."""
        self.seconds += done.seconds
        self.evaluations += done.evaluations


class NoPrior(Exception):
    """A piece needs a prior that does not exist here (yet); it says so, and is all there is."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece.name)
        self.piece = piece


def told_if_missing(make: Callable[[Workshop], Piece]) -> Callable[[Workshop], Piece]:
    """The same, with what a piece says of a missing prior in place of the piece."""

    def made(shop: Workshop) -> Piece:
        try:
            piece = make(shop)
        except NoPrior as missing:
            piece = missing.piece
        piece.settings = {"data": shop.data, "seed": shop.seed, "size": shop.size} | piece.settings
        return piece

    return made


@dataclass(frozen=True)
class Separated:
    """Mixtures separated in one way, put together from shards."""

    sources: Tensor
    psnr: Tensor
    spent: Tensor
    residual: Tensor
    seconds: float

    @property
    def evaluations(self) -> int:
        """Network evaluations in all."""
        return int(self.spent.sum())


class Workshop:
    """Everything that pieces are made with.

    Args:
        shards: Where results are kept.
        size: How much to do, as a share of what was published; the least is a handful.
        root: The data root.
        data: The set whose test images are mixed: mnist, or sample where there is none.
        miniature: Whether schedules are cut to a few steps: for tests of the path, worthless as figures.
        tell: Told what is being done, and how far it is.
    """

    def __init__(
        self,
        shards: Shards,
        *,
        size: float = 1.0,
        seed: int = 0,
        root: str | None = None,
        data: str = "mnist",
        device: str = "cpu",
        miniature: bool = False,
        tell: Callable[[str, float], None] = lambda what, share: None,
    ) -> None:
        self.shards, self.size, self.seed = shards, size, seed
        self.root, self.data, self.device, self.tell = root, data, device, tell
        self.miniature = miniature
        self._priors: dict[str, Prior] = {}
        self._eyes: dict[str, Eyes | None] = {}

    def count(self, full: int, least: int = 4) -> int:
        """How many to do where the full version does `full`."""
        return max(least, round(full * self.size))

    def prior(self, name: str) -> Prior | None:
        """A prior by name; None where there is none (yet)."""
        if name not in self._priors:
            if name not in [entry.name for entry in list_priors(self.root)]:
                return None
            self._priors[name] = load_prior(name, root=self.root, device=self.device)
        return self._priors[name]

    def need(self, name: str, piece: Piece) -> Prior:
        """A prior that a piece cannot do without."""
        prior = self.prior(name)
        if prior is None:
            piece.text.append(f"no prior called {name!r} yet")
            raise NoPrior(piece)
        return prior

    def about(self, prior: Prior | Sequence[Prior], **settings: Any) -> dict[str, Any]:
        """What names a shard that was made with a prior, or with one per source."""
        if not isinstance(prior, Prior):
            each = [self.about(p) for p in prior]
            told: dict[str, Any] = {key: [e[key] for e in each] for key in ("prior", "sum")}
        else:
            told = {"prior": prior.describe(), "sum": prior.card and prior.card.sha256}
        return {"data": self.data, "seed": self.seed} | told | settings

    def schedule(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a separation, as they are to be run."""
        if not self.miniature:
            return settings
        return settings | ({"effort": 20} if "effort" in settings else {"steps": 2})

    def eyes(self, name: str) -> Eyes | None:
        """A network that compares sets of images; None where it is not installed."""
        if name not in self._eyes:
            try:
                self._eyes[name] = load_network(name, root=self.root)
            except BasisError:
                self._eyes[name] = None
        return self._eyes[name]

    def reference(self, name: str, data: str, count: int) -> Gaussian:
        """What a network sees in the first training images of a set."""
        eyes = self.eyes(name)
        assert eyes is not None

        def make() -> Shard:
            images = load_images(data, "train", root=self.root).images[:count]
            self.tell(f"{name} looks at {data}", 0.0)
            seen = gaussian_of(eyes.look(images).features)
            return Shard({"mean": seen.mean, "covariance": seen.covariance})

        shard = self.shards.get("reference", {"network": name, "data": data, "count": count}, make)
        return Gaussian(shard.tensors["mean"], shard.tensors["covariance"], count)

    def pairs(
        self, count: int, *, k: int = 2, protocol: Any = "agnostic", data: str | None = None
    ) -> Pairs:
        """Test mixtures; fewer are the first of more."""
        images = load_images(data or self.data, "test", root=self.root)
        return draw_pairs(images, count, k=k, protocol=protocol, seed=self.seed)

    def separate(
        self,
        prior: Prior,
        count: int,
        *,
        k: int = 2,
        protocol: str = "agnostic",
        data: str | None = None,
        **settings: Any,
    ) -> Separated:
        """Separates the first `count` mixtures, shard by shard."""
        sources = self.pairs(count, k=k, protocol=protocol, data=data).sources
        mixing = mixings.mixture((1.0,) * k, sources.shape[2])
        where = {"k": k, "protocol": protocol, **({"data": data} if data else {})}
        return self.undo(prior, sources, mixing, where, **settings)

    def undo(
        self,
        prior: Prior | Sequence[Prior],
        sources: Tensor,
        mixing: Mixing,
        where: dict[str, Any],
        **settings: Any,
    ) -> Separated:
        """Mixes sources, (count, k, channels, height, width), and finds them again, shard by shard.

        Args:
            prior: One for all sources, or one per source.
            where: What names the sources and the mixing in a shard's name.
        """
        settings = self.schedule(settings)
        count = len(sources)
        shards = []
        for first in range(0, count, BATCH):
            truth = sources[first : first + BATCH]

            def make(truth: Tensor = truth, first: int = first) -> Shard:
                def progress(p: Progress) -> None:
                    self.tell(
                        _words(prior, settings), (first + len(truth) * p.done / p.total) / count
                    )

                result = separate(
                    mixing(truth), prior, mixing=mixing, seed=self.seed, progress=progress,
                    **settings,
                )  # fmt: skip
                return Shard(
                    {
                        "sources": result.sources.half(),
                        "psnr": metrics.psnr(result.sources, truth),
                        "spent": result.spent,
                        "residual": result.residual,
                    }
                )

            about = self.about(prior, first=first, count=len(truth), **where, **settings)
            shards.append(self.shards.get("separated", about, make))

        def joined(name: str) -> Tensor:
            return torch.cat([s.tensors[name] for s in shards])

        return Separated(
            joined("sources").float(),
            joined("psnr"),
            joined("spent"),
            joined("residual"),
            sum(s.seconds for s in shards),
        )

    def draws(
        self,
        prior: Prior,
        truth: Tensor,
        mixing: Mixing,
        draws: int,
        name: str,
        piece: Piece,
        **settings: Any,
    ) -> Tensor:
        """Several draws of the posterior of each mixture: (count, draws, k, channels, height, width)."""
        settings = self.schedule(settings or {"sampler": "gibbs"})

        def make() -> Shard:
            result = separate(
                mixing(truth), prior, mixing=mixing, samples=draws, seed=self.seed, **settings,
                progress=lambda p: self.tell(name, p.done / p.total),
            )  # fmt: skip
            return Shard(
                {"samples": result.samples.half()}, {"evaluations": int(result.spent.sum())}
            )

        about = self.about(prior, count=len(truth), k=truth.shape[1], draws=draws, **settings)
        shard = self.shards.get(name, about, make)
        piece.seconds += shard.seconds
        piece.evaluations += shard.values["evaluations"]
        return shard.tensors["samples"].float()


def _words(prior: Prior | Sequence[Prior], settings: dict[str, Any]) -> str:
    names = [prior.name] if isinstance(prior, Prior) else [p.name for p in prior]
    return " ".join([*names, *(f"{k}={v}" for k, v in settings.items())])


def png(picture: Image.Image) -> bytes:
    """A picture as a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()


def dB(values: Tensor | Sequence[float]) -> str:
    """Mean and standard error, as a table shows them."""
    s = metrics.summarise(torch.as_tensor(values))
    return f"{s.mean:.2f} ± {s.stderr:.2f}"
