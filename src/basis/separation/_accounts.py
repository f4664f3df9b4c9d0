"""What the chunks of one separation share: seeds, a count of steps, priors ready to answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from basis.priors import Prior
from basis.samplers import item_seeds
from basis.separation._result import Progress
from basis.separation._search import Seeds


@contextmanager
def evaluating(priors: Sequence[Prior]) -> Iterator[None]:
    """Priors in evaluation mode for the length of the block, then as they were before."""
    modules = {module: module.training for prior in priors for module in prior.modules()}
    for prior in priors:
        prior.eval()
    try:
        yield
    finally:
        for module, training in modules.items():
            module.training = training


class StepCounter:
    """Adds up the steps of chunks that run side by side."""

    def __init__(self, chunks: int, callback: Callable[[Progress], None] | None) -> None:
        self.chunks, self.callback = chunks, callback
        self.done: dict[int, int] = {}
        self.lock = threading.Lock()

    def __call__(self, chunk: int, done: int, total: int, sigma: float, state: Tensor) -> None:
        if self.callback is not None:
            with self.lock:
                self.done[chunk] = done
                done = sum(self.done.values())
                self.callback(Progress(done, self.chunks * total, sigma, state))


class ItemSeeds:
    """Seeds of the items of a batch, by label."""

    def __init__(
        self, observation: Tensor, seed: int, occurrences: Sequence[int] | None = None
    ) -> None:
        self.observation, self.seed, self.occurrences = observation, seed, occurrences
        self.known: dict[tuple[str, int], list[list[int]]] = {}
        self.lock = threading.Lock()

    def cut(self, part: slice) -> Seeds:
        """The same for a part of the batch."""

        def ask(label: str, chains: int) -> list[list[int]]:
            key = (label, chains)
            with self.lock:
                if key not in self.known:
                    self.known[key] = item_seeds(
                        self.observation, chains, self.seed, label, self.occurrences
                    )
            return self.known[key][part]

        return ask
