"""What a sampler works on: observations with priors, a mixing, noise, and a count of the cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.mixing import Mixing, clamp
from basis.priors.prior import Prior
from basis.samplers.noise import Noise

_WIDE = 10 / 3  # spreads that stand for the whole range of values where there is no range


class Problem:
    """One batch of observations with all that a sampler needs to explain them.

    Its rows may be several chains of one item; network evaluations are counted here and nowhere
    else, for each item.

    Args:
        priors: One per source.
        mixing: How sources became the observation.
        observation: m, (batch, *observed).
        noise: The batch's random numbers.
        items: The item that each row belongs to, (batch,); every row is one of its own by default.
        spent: Network evaluations spent on each item so far, (items,), added to in place.
    """

    def __init__(
        self,
        priors: Sequence[Prior],
        mixing: Mixing,
        observation: Tensor,
        noise: Noise,
        *,
        items: Tensor | None = None,
        spent: Tensor | None = None,
    ) -> None:
        self.priors, self.mixing = tuple(priors), mixing
        self.observation, self.noise = observation, noise
        self.items = torch.arange(len(observation)) if items is None else items
        self.spent = torch.zeros(len(observation), dtype=torch.long) if spent is None else spent
        self._gain: Tensor | float | None = None
        self._groups: dict[int, list[int]] = {}
        for index, prior in enumerate(self.priors):
            self._groups.setdefault(id(prior), []).append(index)

    def chains(self, rows: Tensor, count: int, seeds: Sequence[int]) -> Problem:
        """The same problem with `count` chains for each of some rows, on the same account.

        Args:
            rows: (n,), indices of rows.
            seeds: One per chain, n * count of them.
        """
        many = rows.repeat_interleave(count)
        return Problem(
            self.priors,
            self.mixing.rows(many),
            self.observation[many],
            Noise(seeds),
            items=self.items[many],
            spent=self.spent,
        )

    @property
    def evaluations(self) -> int:
        """The most network evaluations spent on any item."""
        return int(self.spent.max())

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(batch, sources, channels, *size)."""
        return (len(self.observation), len(self.priors), *self.priors[0].shape)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The noise levels that every prior answers for."""
        return max(p.sigma_min for p in self.priors), min(p.sigma_max for p in self.priors)

    @property
    def std(self) -> float:
        """The smallest spread of any prior."""
        return min(p.std for p in self.priors)

    @property
    def gain(self) -> Tensor | float:
        """How strongly the sources show in what is observed (`Mixing.gain`)."""
        if self._gain is None:
            self._gain = self.mixing.gain(self.empty())
        return self._gain

    @property
    def unit(self) -> float:
        """The width of the range of values, or what stands for it where there is none."""
        widths = [
            p.high - p.low if p.low is not None and p.high is not None else _WIDE * p.std
            for p in self.priors
        ]
        return max(widths)

    def sigma(self, spreads: float) -> float:
        """A noise level from its multiple of the priors' spread, clipped to what they know.

        Where spreads differ, the largest counts for levels above it and the smallest below, so that
        a schedule begins above all sources and ends below.
        """
        pick = max if spreads >= 1 else min
        low, high = self.sigma_range
        return min(max(spreads * pick(p.std for p in self.priors), low), high)

    def levels(self, given: Sequence[float | None], spreads: Sequence[float]) -> list[float]:
        """Falling noise levels: those given, and where None the default in spreads.

        A given level outside of what the priors know is refused; a default is clipped to it, and to
        what is given beside it.
        """
        for value in given:
            if value is not None:
                self.check_sigma(value)
        fixed = [value for value in given if value is not None]
        if any(a < b for a, b in itertools.pairwise(fixed)):
            raise BasisError(
                "noise levels must fall from sigma_max to sigma_min, not "
                + ", ".join(f"{value:g}" for value in fixed)
            )
        found: list[float] = []
        for place, (value, multiple) in enumerate(zip(given, spreads, strict=True)):
            if value is None:
                value = self.sigma(multiple)
                below = [v for v in given[place + 1 :] if v is not None]
                value = max([value, *below])
                value = min([value, *found[-1:]])
            found.append(value)
        return found

    def check_sigma(self, *sigmas: float) -> None:
        """Refuses noise levels that a prior was not trained for."""
        low, high = self.sigma_range
        for sigma in sigmas:
            if not low * (1 - 1e-6) <= sigma <= high * (1 + 1e-6):
                raise BasisError(
                    f"sigma {sigma:g} is outside the prior's range: give one from {low:g} to "
                    f"{high:g}"
                )

    def empty(self) -> Tensor:
        """An unfilled state, in the observation's precision and place."""
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

    def bounds(self, x: Tensor) -> tuple[Tensor | float | None, Tensor | float | None]:
        """Bounds of the sources: numbers or None where all agree, else tensors that broadcast."""
        return (
            self._bound([p.low for p in self.priors], x, -torch.inf),
            self._bound([p.high for p in self.priors], x, torch.inf),
        )

    def _bound(
        self, values: list[float | None], x: Tensor, otherwise: float
    ) -> Tensor | float | None:
        if all(value == values[0] for value in values):
            return values[0]
        filled = [otherwise if value is None else value for value in values]
        return torch.tensor(filled, dtype=x.dtype, device=x.device).view(-1, *[1] * (x.ndim - 2))

    def denoise(self, x: Tensor, sigma: float) -> Tensor:
        """Each source's E[clean | noisy], (batch, sources, ...); a call per distinct prior."""
        return self._each(lambda prior, y: (prior.denoise(y, sigma),), x)[0]

    def moments(self, x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Each source's mean and variance given the noisy one, both (batch, sources, ...)."""
        mean, variance = self._each(lambda prior, y: prior.moments(y, sigma), x)
        return mean, variance

    @property
    def draws_together(self) -> bool:
        """Whether every prior knows how its values move together, and the mixing goes by it."""
        if any(prior.spectrum is None for prior in self.priors):
            return False
        any_state = self.empty()
        return self.mixing.correlated(any_state, any_state[0]) is not None

    def spectra(self, sigma: float) -> Tensor | None:
        """Variance of each frequency given noise of this level, (sources, channels, *size).

        Where that of independent values is one; None where a prior does not know it.
        """
        found = [
            prior.spectrum.at(sigma / prior.std, prior.shape)
            for prior in self.priors
            if prior.spectrum is not None
        ]
        return torch.stack(found) if len(found) == len(self.priors) else None

    def score(self, x: Tensor, sigma: float) -> Tensor:
        """Each source's grad log p_sigma, (batch, sources, ...)."""
        return (self.denoise(x, sigma) - x) / sigma**2

    def log_prob(self, x: Tensor, sigma: float) -> Tensor:
        """The sum over sources of log p_sigma, (batch,), where all priors have a likelihood."""
        self.count(sum(prior.log_prob_cost for prior in self.priors), len(x))
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for index, prior in enumerate(self.priors):
            total += prior.log_prob(x[:, index], sigma)
        return total

    def likelihood_score(self, x: Tensor, noise: float) -> Tensor:
        """The log-likelihood's gradient times the noise variance: A^T (m - A x) without limits."""
        return self.mixing.adjoint(self.mixing.pull(x, self.observation, noise))

    def _each(
        self, call: Callable[[Prior, Tensor], Sequence[Tensor]], x: Tensor
    ) -> Sequence[Tensor]:
        """Asks every distinct prior once, with all its sources folded into the batch."""
        self.count(sum(prior.cost for prior in self.priors), len(x))
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

    def count(self, cost: int, rows: int) -> None:
        """Counts a call on so many rows, which may hold several candidates of every row here."""
        each = cost * (rows // len(self.items))
        self.spent.index_add_(0, self.items, torch.full_like(self.items, each))
