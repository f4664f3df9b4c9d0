"""What is done with a shard's mixtures, in whatever process: the same bits everywhere.

Networks round differently in batches of different sizes and on different numbers of threads. So a
job works in blocks of a fixed number of mixtures, counted from its beginning, one thread each; a
shard is a whole number of blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from basis import metrics
from basis._colorize import colorize
from basis._separate import separate
from basis.errors import BasisError
from basis.priors.prior import Prior
from basis.priors.tiled import large_enough
from basis.store.loading import load_prior

Arrays = dict[str, np.ndarray]
"""Results by name, one row per mixture."""

CHAINS = 128
"""Chains that are advanced together."""

Check = Callable[[], None]
"""Called now and then; raises where the work is to be given up."""


def blank(like: Arrays, count: int) -> Arrays:
    """Results of so many mixtures that could not be separated: NaN, or 0 where there is none."""
    return {
        name: np.full(
            (count, *a.shape[1:]), np.nan if np.issubdtype(a.dtype, np.floating) else 0, a.dtype
        )
        for name, a in like.items()
    }


@dataclass(frozen=True)
class Payload:
    """The mixtures of a shard, as they travel to whoever works on them.

    Attributes:
        mixture: float32 (n, c, *size).
        occurrences: How often each came before in the job.
        failures: Those that cannot be used, by their place in the shard.
        truth: float32 (n, k, C, *size) where known.
    """

    mixture: np.ndarray
    occurrences: list[int]
    failures: dict[int, str]
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class Made:
    """What became of a shard."""

    arrays: Arrays
    failures: dict[int, str]


@dataclass(frozen=True, eq=False)
class Recipe:
    """How every block of a job is worked on.

    Attributes:
        task: What is done.
        priors: Names or folders, which every worker loads once, or priors as they are.
        size: The mixtures' size; priors of smaller signals see them through tiles.
        block: Mixtures at once.
        settings: What `separate` or `colorize` gets beside the mixtures and the priors.
        chains: Chains that are advanced together at most.
        keep_samples: Whether all samples are results, not only the chosen one.
        root: The data root.
        device: Where to compute; "auto" is a worker's own GPU where it has one.
        checksums: Of the weights of priors given by name, so that no worker has others.
        score: The range of values that PSNR is measured by, where the truth is known.
    """

    task: Literal["separate", "colorize"]
    priors: tuple[str | Prior, ...]
    size: tuple[int, ...]
    block: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    chains: int = CHAINS
    keep_samples: bool = False
    root: str | None = None
    device: str = "cpu"
    checksums: tuple[str, ...] = ()
    score: tuple[float, float] | None = None


_LOADED: dict[Any, list[Prior]] = {}
_LOADING = threading.Lock()


def load_priors(recipe: Recipe, device: str) -> list[Prior]:
    """A recipe's priors: loaded once in a process, and large enough for the mixtures."""
    names = tuple(p if isinstance(p, str) else id(p) for p in recipe.priors)
    key = (names, recipe.root, device, recipe.size, recipe.task)
    with _LOADING:
        if key not in _LOADED:
            _LOADED.clear()  # a worker that turns to another job needs the memory
            found = [
                load_prior(p, root=recipe.root, device=device)
                if isinstance(p, str)
                else p.to(device)
                for p in recipe.priors
            ]
            for prior, checksum in zip(found, recipe.checksums, strict=False):
                own = prior.card.sha256 if prior.card is not None else ""
                if own != checksum:
                    raise BasisError(
                        f"prior {prior.name!r} has other weights here than where the job was "
                        "started; put the same folder on every worker"
                    )
            if recipe.task == "separate":
                found = large_enough(found, recipe.size)
            _LOADED[key] = [prior.eval() for prior in found]
        return _LOADED[key]


def own_device(device: str, number: int | None = None) -> str:
    """Where a worker computes: "auto" is its own GPU, or the processor where it has none.

    Args:
        device: What the recipe says.
        number: A worker's number, where several workers see the same GPUs and have to share them.
    """
    if device not in ("auto", "cuda"):
        return device
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not gpus:
        return "cpu"
    return f"cuda:{0 if number is None else number % gpus}"


def work(recipe: Recipe, payload: Payload, device: str = "cpu", check: Check | None = None) -> Made:
    """All blocks of a shard, one after the other."""
    priors = load_priors(recipe, device)
    if device == "cpu":
        torch.set_num_threads(1)
    made: list[Arrays] = []
    failures: dict[int, str] = {}
    for start in range(0, len(payload.mixture), recipe.block):
        part = slice(start, start + recipe.block)
        mixture = torch.from_numpy(payload.mixture[part])
        truth = None if payload.truth is None else torch.from_numpy(payload.truth[part])
        bad = {i - start: r for i, r in payload.failures.items() if start <= i < part.stop}
        block = _Block(recipe, priors, mixture, payload.occurrences[part], truth, check)
        arrays, found = block.run(bad)
        made.append(arrays)
        failures |= {start + place: reason for place, reason in found.items()}
    whole = [arrays for arrays in made if arrays]
    if not whole:
        return Made({}, failures)
    like = whole[0]
    sizes = [
        min(recipe.block, len(payload.mixture) - s)
        for s in range(0, len(payload.mixture), recipe.block)
    ]
    filled = [a or blank(like, n) for a, n in zip(made, sizes, strict=True)]
    return Made({name: np.concatenate([a[name] for a in filled]) for name in like}, failures)


@dataclass
class _Block:
    """Mixtures that are worked on together."""

    recipe: Recipe
    priors: list[Prior]
    mixture: Tensor
    occurrences: list[int]
    truth: Tensor | None
    check: Check | None

    def run(self, bad: dict[int, str]) -> tuple[Arrays, dict[int, str]]:
        """Results and failures; no results where nothing can be used.

        A mixture that cannot be used is replaced by another one, so that the rest is worked on in
        a batch of the same size, and its results are then blanked.
        """
        count = len(self.mixture)
        good = [i for i in range(count) if i not in bad]
        if not good:
            return {}, bad
        rows = [i if i not in bad else good[0] for i in range(count)]
        try:
            arrays = self._compute(rows)
        except BasisError as error:
            if len(good) == 1:
                return {}, bad | {good[0]: str(error)}
            return self._one_by_one(good, bad)
        return _blanked(arrays, bad), bad

    def _one_by_one(self, good: list[int], bad: dict[int, str]) -> tuple[Arrays, dict[int, str]]:
        """Each by itself, to find which of them it is that fails."""
        found: dict[int, Arrays] = {}
        failures = dict(bad)
        for place in good:
            try:
                found[place] = self._compute([place])
            except BasisError as error:
                failures[place] = str(error)
        if not found:
            return {}, failures
        like = next(iter(found.values()))
        rows = [found.get(i) or blank(like, 1) for i in range(len(self.mixture))]
        return {name: np.concatenate([row[name] for row in rows]) for name in like}, failures

    def _compute(self, rows: list[int]) -> Arrays:
        return (self._coloured if self.recipe.task == "colorize" else self._separated)(rows)

    def _options(self, rows: list[int]) -> dict[str, Any]:
        def progress(_: object) -> None:
            if self.check is not None:
                self.check()

        return {
            **self.recipe.settings,
            "occurrences": [self.occurrences[i] for i in rows],
            "chunk": self.recipe.chains,
            "workers": 1,
            "progress": progress,
        }

    def _separated(self, rows: list[int]) -> Arrays:
        priors = self.priors[0] if len(self.priors) == 1 else self.priors
        result = separate(self.mixture[rows], priors, **self._options(rows))
        sources = result.sources.cpu()
        arrays = {
            "residual": result.residual.cpu().numpy(),
            "evaluations": result.spent.cpu().numpy().astype(np.int64),
        }
        if result.plausibility is not None:
            arrays["plausibility"] = result.plausibility.cpu().numpy().astype(np.float32)
        if self.truth is not None:
            truth = self.truth[rows]
            sources = metrics.reorder(sources, truth)
            if self.recipe.score is not None:
                arrays["psnr"] = metrics.psnr(
                    sources, truth, self.recipe.score, permute=True
                ).numpy()
        arrays["sources"] = sources.numpy()
        if self.recipe.keep_samples:
            arrays["samples"] = result.samples.cpu().numpy()
            arrays["energies"] = result.energies.cpu().numpy()
        return arrays

    def _coloured(self, rows: list[int]) -> Arrays:
        grey = self.mixture[rows]
        colours, result = colorize(grey, self.priors[0], **self._options(rows))
        off = (colours.mean(dim=2) - grey).abs().flatten(1).amax(dim=1) * 255
        pixels = (colours * 255).round().to(torch.uint8)
        return {
            "colours": pixels.cpu().numpy(),
            "difference": off.cpu().numpy(),
            "evaluations": result.spent.cpu().numpy().astype(np.int64),
        }


def block_size(chains: int, widest: int) -> int:
    """Mixtures of so many chains each that are worked on together."""
    return max(1, chains // widest)


def _blanked(arrays: Arrays, places: Mapping[int, object]) -> Arrays:
    if places:
        empty = blank(arrays, 1)
        for name in arrays:
            arrays[name] = arrays[name].copy()
            arrays[name][list(places)] = empty[name]
    return arrays
