"""What a visitor asks for: a mixture, and a way of pulling it apart."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from basis._colorize import colorize, colouring
from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import grey, mixture
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.progress import Progress
from basis.result import Result
from basis.settings import EFFORTS
from basis.store.loading import load_prior

Kind = Literal["separate", "colorize", "inpaint"]
COLOUR_SIDE = 64
"""The longest side that colours are drawn at."""


@dataclass(frozen=True)
class Way:
    """A prior, and an effort or a sampler.

    Attributes:
        prior: A name that `load_prior` knows.
        method: An effort ("fast") or a sampler ("gibbs").
        draws: Posterior draws.
    """

    prior: str = "mnist"
    method: str = "fast"
    draws: int = 4

    def settings(self) -> dict[str, Any]:
        """Keywords of `separate`; an effort draws beside its search where several are asked for."""
        if self.is_effort and self.draws == 1:
            return {"effort": self.method}
        named = "effort" if self.is_effort else "sampler"
        return {named: self.method, "samples": self.draws, "choose": "energy"}

    @property
    def is_effort(self) -> bool:
        """Whether the method is an effort and not a sampler."""
        return self.method in EFFORTS


@dataclass(frozen=True)
class Task:
    """A mixture and the way in which it is pulled apart.

    Attributes:
        kind: Sources of a sum, colours of a grey photo, or what lies under a mask.
        observed: (1, channels, height, width); of an inpainting the photo, masked or not.
        alphas: The weights that the sources were mixed with; one for the kinds of a single source.
        way: How.
        seed: What everything is drawn from.
        truth: The sources that were mixed, (1, k, channels, height, width), where they are known.
        references: What the command line calls the sources, None for those that were brought.
        mask: Ones where the photo is seen, (1, height, width), of an inpainting.
        told: Whether the separation is told the weights.
    """

    kind: Kind
    observed: Tensor = field(repr=False)
    alphas: tuple[float, ...]
    way: Way = Way()
    seed: int = 0
    truth: Tensor | None = field(default=None, repr=False)
    references: tuple[str | None, ...] = ()
    mask: Tensor | None = field(default=None, repr=False)
    told: bool = True

    def __str__(self) -> str:
        how = f"{'effort' if self.way.is_effort else 'sampler'} {self.way.method}"
        if self.kind != "separate" and self.way.is_effort:
            how = "sampler ancestral"  # see `colouring`
        return f"{self.way.prior} prior, {how}"

    @property
    def sources(self) -> int:
        """How many sources are looked for."""
        return len(self.alphas)

    def prior(self) -> Prior:
        """The prior, through tiles where the picture is larger than it knows."""
        prior = cached_prior(self.way.prior)
        size = tuple(self.observed.shape[2:])
        if self.kind == "colorize":
            # As `colorize` does: colours are drawn at a smaller size.
            longest = max(COLOUR_SIDE, *prior.shape[1:])
            share = min(1.0, longest / max(size))
            size = tuple(
                max(own, round(side * share))
                for own, side in zip(prior.shape[1:], size, strict=True)
            )
        return prior if size == prior.shape[1:] else Tiled(prior, *size)

    def mixing(self, result: Result | None = None) -> Mixing:
        """How the sources became what is observed; with the weights that a result estimated."""
        if self.kind == "colorize":
            return grey(channels=3)
        mixing = mixture(self.alphas if result is None else self.weights(result))
        return mixing if self.mask is None else mixing.replace(mask=self.mask)

    def weights(self, result: Result) -> tuple[float, ...]:
        """The weights that a result goes by: those told, or estimated."""
        if self.told or result.alphas is None:
            return self.alphas
        return tuple(result.alphas[0].tolist())

    def solve(self, progress: Callable[[Progress], None]) -> tuple[Tensor, Result]:
        """The answer as the page shows it, (1, draws or 1, k, channels, height, width), and the
        result of the separation.
        """
        if self.kind == "colorize":
            coloured, result = colorize(
                self.observed,
                cached_prior(self.way.prior),
                side=COLOUR_SIDE,
                seed=self.seed,
                progress=progress,
                samples=self.way.draws,
                choose="energy",
                **colour_settings(self),
            )
            return coloured[:, :, None], result
        settings = self.way.settings()
        if self.kind == "inpaint" and self.way.is_effort:
            settings = inpaint_settings(self)
        settings |= (
            {"mixing": self.mixing()}
            if self.told
            else {"alphas": "unknown", "sources": self.sources}
        )
        result = separate(
            self.observed, self.prior(), seed=self.seed, progress=progress, **settings
        )
        return result.sources[:, None], result


def colour_settings(task: Task) -> dict[str, Any]:
    """What `colorize` is given beyond its own settings."""
    if task.way.is_effort:
        return colouring(task.prior())
    return {"sampler": task.way.method}


def inpaint_settings(task: Task) -> dict[str, Any]:
    """What fills in a photo: the sampler of colourings, whose pixels agree with each other."""
    return colouring(task.prior()) | {"samples": task.way.draws, "choose": "energy"}


_loading = threading.Lock()


@functools.lru_cache(maxsize=8)
def _loaded(name: str) -> Prior:
    return load_prior(name)


def cached_prior(name: str) -> Prior:
    """A prior by name, loaded once for all visitors."""
    with _loading:
        return _loaded(name)


def check_task(task: Task) -> None:
    """Refuses what no separation can be asked for, in a sentence for the page."""
    prior = cached_prior(task.way.prior)
    channels = task.observed.shape[1]
    wanted = 1 if task.kind == "colorize" else prior.shape[0]
    if channels != wanted or (task.kind == "colorize" and prior.shape[0] != 3):
        kind = "colour" if prior.shape[0] == 3 else "grey"
        raise BasisError(
            f"the prior {task.way.prior} is of {kind} pictures, which does not fit this: choose "
            "another prior"
        )
    if task.kind == "separate" and not any(task.alphas):
        raise BasisError("every weight is zero, so there is nothing to see: slide one of them up")
    if task.kind == "separate" and 0 in task.alphas:
        raise BasisError(
            "a source of weight zero is not in the mixture: slide it up, or take fewer sources"
        )
    if task.mask is not None and bool(torch.all(task.mask == 1)):
        raise BasisError("nothing is painted over yet: brush over what is to be filled in")
    if task.mask is not None and bool(torch.all(task.mask == 0)):
        raise BasisError("all of the photo is painted over: leave something to go by")
