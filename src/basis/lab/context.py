"""What tables are computed with: priors, test mixtures, separations and the cache of results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from basis import metrics, mixings
from basis._mix import Pairs, Protocol, draw_pairs
from basis._separate import separate
from basis.errors import BasisError
from basis.lab.cache import CachedResult, ResultCache, fingerprint
from basis.lab.networks import load_network
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.result import Result
from basis.samplers import SAMPLERS
from basis.samplers.sampler import Sampler
from basis.search.plan import Plan
from basis.settings import METHODS
from basis.signals.datasets import load_images
from basis.store.loading import list_priors, load_prior

BATCH = 32
"""Mixtures in one cached result: the most that an interruption loses."""

PriorOrPriors = Prior | Sequence[Prior]


class MissingRequirement(Exception):
    """A table needs a prior or a package that is not available; the message names it."""


@dataclass(frozen=True)
class Separated:
    """Mixtures separated by one method.

    Attributes:
        sources: (count, k, channels, *size).
        psnr, evaluations, residual: Of each mixture, (count,).
        samples: (count, samples, k, channels, *size) if samples were asked for, else empty.
        seconds: Of computing.
    """

    sources: Tensor
    psnr: Tensor
    evaluations: Tensor
    residual: Tensor
    samples: Tensor
    seconds: float


def separate_with(
    observation: Tensor, prior: PriorOrPriors, mixing: Mixing | None, **settings: Any
) -> Result:
    """Calls `separate` without a progress bar of its own; all of this subpackage does so here.

    Args:
        settings: method, estimate and every other argument of `separate`.
    """
    settings = {"progress": False} | {k: v for k, v in settings.items() if v is not None}
    prior = prior if isinstance(prior, Prior) else list(prior)
    return separate(observation, prior, mixing=mixing, **settings)


class Context:
    """What tables are computed with.

    Args:
        cache: Where results are kept.
        size: How much to measure, as a fraction of the full version. Above 1, only tables that can
            measure more do.
        seed: Seed of all random choices.
        root: The data root.
        data: The set whose test images are mixed: "mnist", or "sample" (the built-in digits).
        device: Where priors compute.
        chosen: Names or folders of priors for the tables that can measure any prior.
        method: The method of the tables that can measure any method.
        miniature: Cut all schedules to a few steps: for tests, the figures are meaningless.
        on_progress: Called with what is being computed and the fraction that is done.
    """

    def __init__(
        self,
        cache: ResultCache,
        *,
        size: float = 1.0,
        seed: int = 0,
        root: str | None = None,
        data: str = "mnist",
        device: str = "cpu",
        chosen: Sequence[str] = (),
        method: Any = None,
        miniature: bool = False,
        on_progress: Callable[[str, float], None] = lambda what, fraction: None,
    ) -> None:
        self.cache, self.size, self.seed = cache, size, seed
        self.root, self.data, self.device = root, data, device
        self.chosen, self.method = tuple(chosen), method
        self.miniature, self.on_progress = miniature, on_progress
        self.priors: dict[str, Prior] = {}
        self.networks: dict[str, Any] = {}
        self._hashes: dict[Any, Any] = {}

    def settings(self) -> dict[str, Any]:
        """The settings that every section of the report shows."""
        return {"data": self.data, "seed": self.seed, "size": self.size}

    def with_size(self, size: float) -> Context:
        """The same context with another size; priors and cache are shared."""
        other = copy.copy(self)
        other.size = size
        return other

    @property
    def photos(self) -> str:
        """The set of photos that is mixed."""
        return {"mnist": "cifar10", "sample": "sample-photos"}.get(self.data, self.data)

    def count(self, full: int, at_least: int = 4, at_most: int | None = None) -> int:
        """How many mixtures to measure where the full version measures `full`.

        Args:
            at_least: Of any size.
            at_most: Of sizes above 1; `full` by default.
        """
        return max(at_least, min(round(full * self.size), at_most or full))

    def prior(self, name: str) -> Prior | None:
        """A prior by name or folder, or None if there is none."""
        if name not in self.priors:
            known = [*self.chosen, *(entry.name for entry in list_priors(self.root))]
            if name not in known:
                return None
            self.priors[name] = load_prior(name, root=self.root, device=self.device)
        return self.priors[name]

    def need(self, name: str) -> Prior:
        """A prior that a table cannot do without; raises `MissingRequirement`."""
        prior = self.prior(name)
        if prior is None:
            raise MissingRequirement(f"there is no prior {name!r}")
        return prior

    def need_chosen(self, *default: str) -> list[Prior]:
        """The priors chosen by the user, or the default ones that exist; at least one."""
        if self.chosen:
            return [self.need(name) for name in self.chosen]
        found = [prior for prior in map(self.prior, default) if prior is not None]
        if not found:
            raise MissingRequirement(f"there is no prior {default[0]!r}")
        return found

    def pairs(
        self, count: int, *, k: int = 2, protocol: Protocol = "agnostic", data: str | None = None
    ) -> Pairs:
        """Test mixtures; the first ones are the same for every count."""
        images = load_images(data or self.data, "test", root=self.root)
        return draw_pairs(images, count, k=k, protocol=protocol, seed=self.seed)

    def feature_network(self, name: str) -> Any:
        """A network whose features compare sets of images, or None if it is not installed."""
        if name not in self.networks:
            try:
                self.networks[name] = load_network(name, root=self.root)
            except BasisError:
                self.networks[name] = None
        return self.networks[name]

    def schedule(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a separation as they are run: those given, or a miniature of them."""
        method = settings.get("method")
        if not self.miniature or method is None:
            return settings
        return settings | {"method": _shortened(method)}

    def cached(
        self, name: str, key: dict[str, Any], compute: Callable[[], CachedResult]
    ) -> CachedResult:
        """A result from the cache, or computed now; see `ResultCache.get`."""
        return self.cache.get(name, {"seed": self.seed} | key, compute)

    def hash_of(self, value: Any) -> Any:
        """The fingerprint of an object that does not change while the context exists."""
        # The object is kept with its fingerprint, so that no other object gets the same id.
        if id(value) not in self._hashes:
            self._hashes[id(value)] = (value, fingerprint(value))
        return self._hashes[id(value)][1]

    def key(
        self, prior: PriorOrPriors, truth: Tensor, mixing: Mixing, settings: dict[str, Any]
    ) -> dict[str, Any]:
        """Everything a separation of mixtures of `truth` depends on."""
        priors = [prior] if isinstance(prior, Prior) else prior
        return {
            "priors": [self.hash_of(p) for p in priors],
            "settings": settings,
            "mixing": mixing.describe(),
            "truth": truth,
            "observation": mixing(truth),
        }

    def separate_pairs(
        self,
        prior: Prior,
        count: int,
        *,
        k: int = 2,
        protocol: Protocol = "agnostic",
        data: str | None = None,
        **settings: Any,
    ) -> Separated:
        """Separates the first `count` test mixtures with alphas of 1."""
        sources = self.pairs(count, k=k, protocol=protocol, data=data).sources
        mixing = mixings.mixture((1.0,) * k, sources.shape[2])
        return self.separate(prior, sources, mixing, **settings)

    def separate(
        self, prior: PriorOrPriors, sources: Tensor, mixing: Mixing, **settings: Any
    ) -> Separated:
        """Mixes sources, (count, k, channels, *size), and separates them again.

        Args:
            prior: One for all sources, or one per source.
            sources: What is mixed.
            mixing: How.
            settings: Arguments of `separate`.
        """
        settings = self.schedule(settings)
        priors = [prior] if isinstance(prior, Prior) else prior
        label = " ".join([*(p.name for p in priors), describe_settings(settings)])
        results = []
        for first in range(0, len(sources), BATCH):
            truth = sources[first : first + BATCH]

            def compute(truth: Tensor = truth, first: int = first) -> CachedResult:
                def progress(p: Progress) -> None:
                    done = first + len(truth) * p.done / p.total
                    self.on_progress(label, done / len(sources))

                result = separate_with(
                    mixing(truth), prior, mixing, seed=self.seed, progress=progress, **settings
                )
                samples = torch.empty(0) if result.samples is None else result.samples
                return CachedResult(
                    {
                        "sources": result.sources.half(),
                        "psnr": metrics.psnr(result.sources, truth, permute=True),
                        "evaluations": result.item_evaluations,
                        "residual": result.residual,
                        "samples": samples.half(),
                    }
                )

            key = self.key(prior, truth, mixing, settings)
            results.append(self.cached("separated", key, compute))
        names = ("sources", "psnr", "evaluations", "residual", "samples")
        joined = {name: torch.cat([r.tensors[name] for r in results]) for name in names}
        joined |= {name: joined[name].float() for name in ("sources", "samples")}
        return Separated(**joined, seconds=sum(r.seconds for r in results))


def describe_settings(settings: dict[str, Any]) -> str:
    """Settings of a separation as tables and progress bars show them: method=fast samples=8."""
    shown = {
        name: value.name if isinstance(value, Sampler) else value
        for name, value in settings.items()
    }
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _shortened(method: Any) -> Any:
    """A few steps of a method."""
    if isinstance(method, Plan):
        rounds = tuple(replace(r, sampler=_shortened(r.sampler)) for r in method.rounds)
        return replace(method, rounds=rounds)
    if isinstance(method, Sampler):
        return replace(method, steps=2)  # type: ignore[call-arg]
    if isinstance(method, int) or method in METHODS:
        return 60
    return SAMPLERS[method](steps=2)  # type: ignore[call-arg]
