"""What a sampler works on: observations, priors, a mixing, noise, and a count of evaluations."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.tensors import Bound, clamp

_UNBOUNDED_WIDTH = 10 / 3  # width of the values of an unbounded prior, in standard deviations


class Problem:
    """A batch of observations with everything a sampler needs.

    The batch may hold several chains of one item. Network evaluations are counted here and nowhere
    else, per item.

    Args:
        priors: One per source.
        mixing: How the sources became the observation.
        observation: m, (batch, *observed).
        noise: The random numbers of the batch.
        items: The item that each chain belongs to, (batch,); by default every chain is an item of
            its own.
        evaluations: Network evaluations of each item so far, (items,); updated in place.
    """

    def __init__(
        self,
        priors: Sequence[Prior],
        mixing: Mixing,
        observation: Tensor,
        noise: Noise,
        *,
        items: Tensor | None = None,
        evaluations: Tensor | None = None,
    ) -> None:
        self.priors, self.mixing = tuple(priors), mixing
        self.observation, self.noise = observation, noise
        self.items = torch.arange(len(observation)) if items is None else items
        if evaluations is None:
            evaluations = torch.zeros(len(observation), dtype=torch.long)
        self.evaluations = evaluations
        self._gain: Tensor | float | None = None
        self._groups: dict[int, list[int]] = {}
        for index, prior in enumerate(self.priors):
            self._groups.setdefault(id(prior), []).append(index)

    def chains(self, index: Tensor, count: int, seeds: Sequence[int]) -> Problem:
        """The same problem with `count` chains for each selected entry of the batch.

        Args:
            index: (n,), positions in the batch.
            count: Chains for each of them.
            seeds: One per chain, n * count of them.
        """
        repeated = index.repeat_interleave(count)
        return Problem(
            self.priors,
            self.mixing.select(repeated),
            self.observation[repeated],
            Noise(seeds),
            items=self.items[repeated],
            evaluations=self.evaluations,
        )

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(batch, sources, channels, *size)."""
        return (len(self.observation), len(self.priors), *self.priors[0].shape)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The noise levels that all priors support."""
        return max(p.sigma_min for p in self.priors), min(p.sigma_max for p in self.priors)

    @property
    def std(self) -> float:
        """The smallest standard deviation of any prior."""
        return min(p.std for p in self.priors)

    @property
    def gain(self) -> Tensor | float:
        """The weight of a source in the observation (`Mixing.gain`)."""
        if self._gain is None:
            self._gain = self.mixing.gain(self.empty())
        return self._gain

    @property
    def value_width(self) -> float:
        """The width of the value range; 10/3 standard deviations for unbounded priors."""
        widths = [
            _UNBOUNDED_WIDTH * p.std if p.low is None or p.high is None else p.high - p.low
            for p in self.priors
        ]
        return max(widths)

    def sigma(self, stds: float) -> float:
        """A noise level in standard deviations of the priors, clamped to the range they support.

        Where these differ, the largest counts for levels of at least 1 and the smallest below, so
        that a schedule starts above all sources and ends below.
        """
        pick = max if stds >= 1 else min
        low, high = self.sigma_range
        return min(max(stds * pick(p.std for p in self.priors), low), high)

    def noise_levels(self, sigmas: Sequence[float | None], stds: Sequence[float]) -> list[float]:
        """Falling noise levels: the given ones, and defaults where None.

        A given level outside of the range that the priors support raises; a default is clamped to
        that range and to the given levels.

        Args:
            sigmas: The levels from the first to the last; None for the default.
            stds: The defaults, in standard deviations of the priors.
        """
        given = [value for value in sigmas if value is not None]
        self.check_sigma(*given)
        if any(a < b for a, b in itertools.pairwise(given)):
            raise BasisError(
                "noise levels must fall from sigma_max to sigma_min, not "
                + ", ".join(f"{value:g}" for value in given)
            )
        levels: list[float] = []
        for index, (value, default) in enumerate(zip(sigmas, stds, strict=True)):
            if value is None:
                below = [v for v in sigmas[index + 1 :] if v is not None]
                value = min([max([self.sigma(default), *below]), *levels[-1:]])
            levels.append(value)
        return levels

    def check_sigma(self, *sigmas: float) -> None:
        """Raises for noise levels that a prior does not support."""
        low, high = self.sigma_range
        for sigma in sigmas:
            if not low * (1 - 1e-6) <= sigma <= high * (1 + 1e-6):
                raise BasisError(
                    f"sigma {sigma:g} is outside the prior's range: give one from {low:g} to "
                    f"{high:g}"
                )

    def empty(self) -> Tensor:
        """An uninitialized state with the dtype and device of the observation."""
        o = self.observation
        return torch.empty(self.state_shape, dtype=o.dtype, device=o.device)

    def center(self) -> Tensor:
        """A state of the priors' typical values."""
        state = self.empty()
        for index, prior in enumerate(self.priors):
            state[:, index] = prior.center
        return state

    def clamp(self, x: Tensor) -> Tensor:
        """x between the bounds of its priors."""
        return clamp(x, *self.bounds(x))

    def bounds(self, x: Tensor) -> tuple[Bound, Bound]:
        """Bounds of the sources: numbers or None where all agree, else tensors that broadcast."""
        return (
            self._bound([p.low for p in self.priors], x, -torch.inf),
            self._bound([p.high for p in self.priors], x, torch.inf),
        )

    def _bound(self, values: list[float | None], x: Tensor, unbounded: float) -> Bound:
        if all(value == values[0] for value in values):
            return values[0]
        filled = [unbounded if value is None else value for value in values]
        return torch.tensor(filled, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.ndim - 2))

    def denoise(self, x: Tensor, sigma: float) -> Tensor:
        """E[clean | noisy] of each source, (batch, sources, ...); one call per distinct prior."""
        return self._call(lambda prior, y: (prior.denoise(y, sigma),), x)[0]

    def moments(self, x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Mean and variance of each source given the noisy one, both (batch, sources, ...)."""
        mean, variance = self._call(lambda prior, y: prior.moments(y, sigma), x)
        return mean, variance

    @property
    def correlated(self) -> bool:
        """Whether all priors know the correlations of values and the mixing can use them."""
        if any(prior.spectrum is None for prior in self.priors):
            return False
        state = self.empty()
        return self.mixing.correlated(state, state[0]) is not None

    def spectra(self, sigma: float) -> Tensor | None:
        """Variance of each frequency given noise of this level, (sources, channels, *size).

        In units of the variance of independent values; None where a prior does not know it.
        """
        found = [
            prior.spectrum.at(sigma / prior.std, prior.shape)
            for prior in self.priors
            if prior.spectrum is not None
        ]
        return torch.stack(found) if len(found) == len(self.priors) else None

    def score(self, x: Tensor, sigma: float) -> Tensor:
        """grad log p_sigma of each source, (batch, sources, ...)."""
        return (self.denoise(x, sigma) - x) / sigma**2

    def log_prob(self, x: Tensor, sigma: float) -> Tensor:
        """The sum over sources of log p_sigma, (batch,), where all priors have a likelihood."""
        self.count(sum(prior.log_prob_evaluations for prior in self.priors), len(x))
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for index, prior in enumerate(self.priors):
            total += prior.log_prob(x[:, index], sigma)
        return total

    def likelihood_score(self, x: Tensor, noise: float) -> Tensor:
        """Gradient of the log-likelihood times the noise variance; without limits A^T (m - A x)."""
        return self.mixing.adjoint(self.mixing.likelihood_residual(x, self.observation, noise))

    def _call(
        self, call: Callable[[Prior, Tensor], Sequence[Tensor]], x: Tensor
    ) -> Sequence[Tensor]:
        """Calls every distinct prior once, with all its sources folded into the batch."""
        self.count(sum(prior.evaluations for prior in self.priors), len(x))
        if len(self._groups) == 1:
            return [out.view(x.shape) for out in call(self.priors[0], x.flatten(0, 1))]
        results: list[Tensor] = []
        for indices in self._groups.values():
            part = x[:, indices]
            outputs = call(self.priors[indices[0]], part.flatten(0, 1))
            results = results or [torch.empty_like(x) for _ in outputs]
            for result, output in zip(results, outputs, strict=True):
                result[:, indices] = output.view(part.shape)
        return results

    def count(self, cost: int, batch: int) -> None:
        """Adds the evaluations of a call on a batch, a multiple of this problem's own."""
        each = cost * (batch // len(self.items))
        self.evaluations.index_add_(0, self.items, torch.full_like(self.items, each))


class Noise:
    """Random numbers from one generator per item, independent of its batch.

    Args:
        seeds: One integer per item.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        # On the CPU whatever the device, so that a seed means the same everywhere.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers with shape, dtype and device of `like` (batch first)."""
        # float32 whatever the precision, so that a seed means the same in float64.
        out = torch.empty(like.shape, dtype=torch.float32)
        for item, generator in zip(out, self.generators, strict=True):
            item.normal_(generator=generator)
        return out.to(like)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers in [0, 1), as in `normal`."""
        out = torch.empty(like.shape, dtype=torch.float32)
        for item, generator in zip(out, self.generators, strict=True):
            item.uniform_(generator=generator)
        return out.to(like)


def item_seeds(
    observation: Tensor,
    samples: int,
    seed: int,
    label: str = "",
    occurrences: Sequence[int] | None = None,
) -> list[list[int]]:
    """Seeds per item and sample that depend on the observation, not on its position in a batch.

    Equal observations in one batch are told apart by counting them, so that repeating a mixture
    gives independent samples.

    Args:
        observation: (batch, *observed).
        samples: Seeds per item.
        seed: The seed of the run.
        label: What the numbers are for; different labels give independent numbers.
        occurrences: How many equal observations precede each item; counted within the batch by
            default.

    Returns:
        For each item of the batch, a list of `samples` seeds.
    """
    seen: Counter[bytes] = Counter()
    seeds = []
    for index, item in enumerate(observation.detach().to("cpu", torch.float32)):
        content = content_digest(item)
        occurrence = seen[content] if occurrences is None else occurrences[index]
        keys = [f"{seed}/{occurrence}/{sample}/{label}".encode() for sample in range(samples)]
        digests = [hashlib.sha256(key + content).digest() for key in keys]
        seeds.append([int.from_bytes(digest[:8], "little") >> 1 for digest in digests])
        seen[content] += 1
    return seeds


def content_digest(item: Tensor) -> bytes:
    """The SHA-256 of an observation's values in float32."""
    values = item.detach().to("cpu", torch.float32).contiguous()
    return hashlib.sha256(values.numpy().tobytes()).digest()
