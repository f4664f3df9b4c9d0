"""What a sampler is, and what it works on."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.mixings import Mixing
from basis.priors import Prior


class Noise:
    """Random numbers from one generator per item, so that no item depends on its batch.

    Args:
        seeds: One integer per item.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        # On the CPU whatever the device, so that a seed means the same everywhere.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers in the shape, precision and place of `like` (batch first)."""
        out = torch.empty(like.shape, dtype=like.dtype)
        for row, generator in zip(out, self.generators, strict=True):
            row.normal_(generator=generator)
        return out.to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """Numbers uniform in [0, 1), as in `normal`."""
        out = torch.empty(like.shape, dtype=like.dtype)
        for row, generator in zip(out, self.generators, strict=True):
            row.uniform_(generator=generator)
        return out.to(like.device)


def item_seeds(observation: Tensor, samples: int, seed: int, label: str = "") -> list[list[int]]:
    """Seeds per item and sample that depend on what is observed and not on where it stands in a batch.

    Equal observations in one batch are told apart by counting them, so that repeating a mixture gives
    independent draws.
    """
    met: Counter[bytes] = Counter()
    seeds = []
    for item in observation.detach().to("cpu", torch.float32):
        content = hashlib.sha256(item.contiguous().numpy().tobytes()).digest()
        row = []
        for sample in range(samples):
            key = f"{seed}/{met[content]}/{sample}/{label}".encode() + content
            row.append(int.from_bytes(hashlib.sha256(key).digest()[:8], "little") >> 1)
        met[content] += 1
        seeds.append(row)
    return seeds


class Problem:
    """One batch of observations with all that a sampler needs to explain them.

    Attributes:
        observation: m, (batch, observed channels, height, width).
        mixing: How sources became m.
        noise: The batch's random numbers.
        evaluations: Network evaluations spent on each item so far.
    """

    def __init__(
        self, priors: Sequence[Prior], mixing: Mixing, observation: Tensor, noise: Noise
    ) -> None:
        self.priors, self.mixing = tuple(priors), mixing
        self.observation, self.noise = observation, noise
        self.evaluations = 0
        self._groups: dict[int, list[int]] = {}
        for index, prior in enumerate(self.priors):
            self._groups.setdefault(id(prior), []).append(index)

    @property
    def state_shape(self) -> tuple[int, int, int, int, int]:
        """(batch, sources, channels, height, width)."""
        return (len(self.observation), len(self.priors), *self.priors[0].shape)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The noise levels that every prior answers for."""
        return max(p.sigma_min for p in self.priors), min(p.sigma_max for p in self.priors)

    def empty(self) -> Tensor:
        """An unfilled state, in the observation's precision and place."""
        o = self.observation
        return torch.empty(self.state_shape, dtype=o.dtype, device=o.device)

    def denoise(self, x: Tensor, sigma: float) -> Tensor:
        """Each source's E[clean | noisy], (batch, sources, ...); one network call per distinct prior."""
        return self._each(lambda prior, y: (prior.denoise(y, sigma),), x)[0]

    def moments(self, x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Each source's mean and variance per clean pixel given the noisy one, both (batch, sources, ...)."""
        mean, variance = self._each(lambda prior, y: prior.moments(y, sigma), x)
        return mean, variance

    def score(self, x: Tensor, sigma: float) -> Tensor:
        """Each source's grad log p_sigma, (batch, sources, ...)."""
        return (self.denoise(x, sigma) - x) / sigma**2

    def likelihood_score(self, x: Tensor) -> Tensor:
        """A^T (m - A x): the log-likelihood's gradient times the noise variance."""
        return self.mixing.adjoint(self.mixing.residual(x, self.observation))

    def check_sigma(self, *sigmas: float) -> None:
        """Refuses noise levels that a prior was not trained for."""
        low, high = self.sigma_range
        for sigma in sigmas:
            if not low * (1 - 1e-6) <= sigma <= high * (1 + 1e-6):
                raise BasisError(
                    f"sigma {sigma:g} is outside the prior's range: give one from {low:g} to {high:g}"
                )

    def _each(
        self, call: Callable[[Prior, Tensor], Sequence[Tensor]], x: Tensor
    ) -> Sequence[Tensor]:
        """Asks every distinct prior once, with all its sources folded into the batch."""
        self.evaluations += sum(prior.cost for prior in self.priors)
        if len(self._groups) == 1:
            return [out.view(x.shape) for out in call(self.priors[0], x.flatten(0, 1))]
        outs: list[Tensor] = []
        for indices in self._groups.values():
            part = x[:, indices]
            answers = call(self.priors[indices[0]], part.flatten(0, 1))
            outs = outs or [torch.empty_like(x) for _ in answers]
            for out, answer in zip(outs, answers, strict=True):
                out[:, indices] = answer.view(part.shape)
        return outs


@dataclass(frozen=True)
class State:
    """Where a sampler stands.

    Attributes:
        x: The sources so far, (batch, sources, channels, height, width).
        sigma: The noise level of x.
        step, steps: Steps done, and in all.
        level_done: Whether this was the last step at its noise level.
    """

    x: Tensor
    sigma: float
    step: int
    steps: int
    level_done: bool


@dataclass(frozen=True)
class Sampler(ABC):
    """Explores the posterior of a problem; its fields are its settings."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, problem: Problem) -> Iterator[State]:
        """Yields a state per step; the last one is the sample."""

    def settings(self) -> dict[str, Any]:
        """What a run's record says of its sampler."""
        return {"name": self.name, **asdict(self)}


def check_numbers(sampler: Sampler, **least: float) -> None:
    """Refuses settings that are not finite numbers above (or, for zero and integers, at least) these bounds."""
    for name, bound in least.items():
        value = getattr(sampler, name)
        whole = isinstance(bound, int)
        if not math.isfinite(value) or (value < bound if whole else value <= bound):
            relation = "at least" if whole else "more than"
            raise BasisError(f"{name} must be a number {relation} {bound:g}, not {value}")


def check_finite(x: Tensor) -> None:
    """Refuses to go on from a state that blew up."""
    if not torch.isfinite(x).all():
        raise BasisError(
            "the dynamics diverged: the prior answers with ever larger values here; "
            "`basis check` says whether it is sound"
        )


def check_share(share: float) -> None:
    """Refuses a share of the steps, as `two_paces` takes it, that is not one."""
    if not 0 <= share <= 1:
        raise BasisError(f"share must be from 0 to 1, not {share}")


def geometric(first: float, last: float, count: int) -> list[float]:
    """`count` numbers in geometric progression, both ends among them."""
    if count == 1:
        return [last]
    return [first * (last / first) ** (i / (count - 1)) for i in range(count)]


def two_paces(first: float, turn: float, last: float, steps: int, share: float) -> list[float]:
    """`steps` + 1 noise levels: a share of the steps slowly from first to turn, the rest quickly to last."""
    slow = min(steps - 1, max(1, round(share * steps))) if steps > 1 else 0
    return [
        *geometric(first, turn, slow + 1)[:slow],
        *geometric(turn if slow else first, last, steps - slow + 1),
    ]
