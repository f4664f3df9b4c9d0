"""What tables are made with: priors, test mixtures, feature networks and the cache of results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from basis._mix import Pairs, Protocol, draw_pairs
from basis.errors import BasisError
from basis.lab.code_hash import code_hash, own_code
from basis.lab.fingerprint import fingerprint
from basis.lab.inception import load_network
from basis.lab.result_cache import CachedResult, ResultCache
from basis.priors.prior import Prior
from basis.samplers import SAMPLERS
from basis.signals.datasets import load_images
from basis.store.loading import list_priors, load_prior


class MissingRequirement(Exception):
    """A table needs a prior or a package that is not here (yet); the message says which."""


def _ignore(what: str, share: float) -> None:
    """The callback that does nothing."""


class Context:
    """What tables are made with.

    Args:
        cache: Where results are kept.
        size: How much to do, as a share of the full version; above 1 what can be measured on more
            is, and all else is as in the full version.
        seed: Seed of everything drawn.
        root: The data root.
        data: The set whose test images are mixed: mnist, or sample where there is none.
        device: Where priors compute.
        miniature: Whether schedules are cut to a few steps: for tests, worthless as figures.
        on_progress: Called with what is being computed and the share of it that is done.
        package: The folder of the package whose code results are kept for; the one that is running
            by default.
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
        miniature: bool = False,
        on_progress: Callable[[str, float], None] = _ignore,
        package: Path | None = None,
    ) -> None:
        self.cache, self.size, self.seed = cache, size, seed
        self.root, self.data, self.device = root, data, device
        self.miniature, self.on_progress, self.package = miniature, on_progress, package
        self.priors: dict[str, Prior] = {}
        # Hashes of code, weights and data do not change while a process runs, and take time.
        self._known: dict[Any, Any] = {}
        self._networks: dict[str, Any] = {}

    def settings(self) -> dict[str, Any]:
        """What every section says of the context."""
        return {"data": self.data, "seed": self.seed, "size": self.size}

    def with_size(self, size: float) -> Context:
        """The same context for another share of the full version; priors and cache are shared."""
        other = copy.copy(self)
        other.size = size
        return other

    @property
    def photos(self) -> str:
        """The set of photos that is mixed."""
        return {"mnist": "cifar10", "sample": "sample-photos"}.get(self.data, self.data)

    def count(self, full: int, least: int = 4, most: int | None = None) -> int:
        """How many mixtures to take where the full version takes `full`.

        Args:
            full: Of a size of 1.
            least: Of any size.
            most: Of sizes above 1; as many as of 1 by default.
        """
        return max(least, min(round(full * self.size), most or full))

    def prior(self, name: str) -> Prior | None:
        """A prior by name; None where there is none (yet)."""
        if name not in self.priors:
            if name not in [entry.name for entry in list_priors(self.root)]:
                return None
            self.priors[name] = load_prior(name, root=self.root, device=self.device)
        return self.priors[name]

    def need(self, name: str) -> Prior:
        """A prior that a table cannot do without; raises `MissingRequirement`."""
        prior = self.prior(name)
        if prior is None:
            raise MissingRequirement(f"no prior called {name!r} yet")
        return prior

    def all_priors(self, names: Sequence[str]) -> list[Prior] | None:
        """All of these priors, or None where one is missing."""
        priors = [self.prior(name) for name in names]
        return None if None in priors else [p for p in priors if p is not None]

    def pairs(
        self, count: int, *, k: int = 2, protocol: Protocol = "agnostic", data: str | None = None
    ) -> Pairs:
        """Test mixtures; the first of a longer draw are those of a shorter one."""
        images = load_images(data or self.data, "test", root=self.root)
        return draw_pairs(images, count, k=k, protocol=protocol, seed=self.seed)

    def feature_network(self, name: str) -> Any:
        """A network whose features compare sets of images; None where it is not installed."""
        if name not in self._networks:
            try:
                self._networks[name] = load_network(name, root=self.root)
            except BasisError:
                self._networks[name] = None
        return self._networks[name]

    def schedule(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a separation, as they are to be run."""
        if not self.miniature:
            return settings
        return settings | ({"effort": 24} if "effort" in settings else {"steps": 2})

    def cached(
        self,
        name: str,
        key: dict[str, Any],
        compute: Callable[[], CachedResult],
        rooms: Sequence[str],
    ) -> CachedResult:
        """A result from the cache, or computed now.

        It is kept for the seed, the key, and the code of the rooms, of everything they import and
        of the file that `compute` is written in.

        Args:
            name: What is computed.
            key: Everything else that it depends on, described by `fingerprint`.
            compute: Called where there is no such result yet.
            rooms: The rooms of the package that compute it, for example "separation".
        """
        rooms = tuple(rooms)
        code = self.known(("rooms", rooms), lambda: code_hash(*rooms, package=self.package))
        own = self.known(("module", compute.__module__), lambda: own_code(compute))
        full = {"seed": self.seed, "key": fingerprint(key), "code": code, "own": own}
        return self.cache.get(name, full, compute)

    def prior_key(self, prior: Prior | Sequence[Prior]) -> Any:
        """What names a prior, or one per source, in a key: all its settings, weights and code."""
        if not isinstance(prior, Prior):
            return [self.prior_key(p) for p in prior]
        return [prior.describe(), self.object_key(prior)]

    def object_key(self, value: object) -> Any:
        """The fingerprint of a large object that stays as it is, made once per context."""
        # The object is kept beside the answer, so that no other one gets its id.
        return self.known(("object", id(value)), lambda: (value, fingerprint(value)))[1]

    def sampler_key(self) -> Any:
        """The code of every sampler as it is now, which the files of its room do not always say."""
        return self.known("samplers", lambda: fingerprint(SAMPLERS))

    def data_key(self, data: str, split: Any) -> Any:
        """What names the images of a set in a key: the hash of all of them and their labels."""

        def describe() -> Any:
            images = load_images(data, split, root=self.root)
            return [data, split, fingerprint(images.images), fingerprint(images.labels)]

        return self.known(("data", data, split), describe)

    def known(self, name: Any, describe: Callable[[], Any]) -> Any:
        """A description that is made once per context."""
        if name not in self._known:
            self._known[name] = describe()
        return self._known[name]
