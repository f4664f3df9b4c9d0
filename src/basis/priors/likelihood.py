"""Likelihood priors: anything with log p(x) becomes a prior by automatic differentiation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.ladder import Ladder, call_log_prob
from basis.nn.variance import VarianceNetwork
from basis.priors.card import Card
from basis.priors.prior import Derived, Prior
from basis.tensors import as_sigmas, per_item


class LikelihoodPrior(Prior):
    """A model with a likelihood as a prior: its score is the gradient of log p.

    Args:
        model: Has `log_prob(x, sigma)`, (batch, channels, *size) and (batch,) to (batch,), in nats.
            A model of one noise level may have `log_prob(x)` alone: set its attribute
            `noise_conditioned` to False. Where it has a method `moments` (and its attribute `head`,
            if it has one, is not None), that answers as for `DenoiserPrior`; where its `head` is a
            `basis.nn.VarianceNetwork`, that answers for the variance. A mapping of noise levels to
            such models is a `Ladder`. A module is taken as it is: neither frozen nor moved.
        shape: (channels, *size).
        sigma_min, sigma_max: The range of noise levels it answers for.
        value_range, center, std, errors, card: As for `Prior`; values in [0, 1] by default.
        chunk: Most signals per call.

    A score costs one pass forward and one backward: three evaluations by this package's count.
    """

    cost = 3

    def __init__(
        self,
        model: nn.Module | Mapping[float, nn.Module] | Any,
        shape: tuple[int, ...],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "likelihood",
        value_range: tuple[float | None, float | None] | None = (0.0, 1.0),
        center: float | None = None,
        std: float | None = None,
        errors: Mapping[float, float] | None = None,
        card: Card | None = None,
        chunk: int = 256,
    ) -> None:
        super().__init__(
            shape,
            sigma_min,
            sigma_max,
            name=name,
            value_range=value_range,
            center=center,
            std=std,
            errors=errors,
            card=card,
        )
        self.model = Ladder(model) if isinstance(model, Mapping) else model
        if not callable(getattr(self.model, "log_prob", None)):
            raise BasisError("a likelihood prior needs a model with log_prob(x, sigma)")
        self.chunk = chunk

    @property
    def module(self) -> Any:
        """The model, under the name that trained priors share."""
        return self.model

    @property
    def likelihood_sigma(self) -> float:
        level = getattr(self.model, "likelihood_level", 0.0)
        return min(max(self.sigma_min, level * self.std), self.sigma_max)

    @property
    def _switch_level(self) -> float:
        # What a network beside the density knows is in the variance alone: the gradient has nothing
        # of it, and following that at small noise was measured to lose what was found.
        beside = isinstance(getattr(self.model, "head", None), VarianceNetwork)
        own = 0.0 if beside else super()._switch_level
        return float(getattr(self.model, "switch_level", own))

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        own = self._own(x)
        s = as_sigmas(sigma, own)
        with torch.no_grad():
            pieces = zip(own.split(self.chunk), s.split(self.chunk), strict=True)
            return torch.cat([call_log_prob(self.model, *p) for p in pieces]).to(x.dtype)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        own = self._own(x)
        s = as_sigmas(sigma, own)
        pieces = zip(own.split(self.chunk), s.split(self.chunk), strict=True)
        return torch.cat([self._gradient(*p) for p in pieces]).to(x.dtype)

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return x + per_item(sigma, x).square() * self.score(x, sigma)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        own = getattr(self.model, "moments", None)
        head = getattr(self.model, "head", self.model)
        if isinstance(head, VarianceNetwork):
            own = self._beside
        if own is None or head is None:
            return super().moments(x, sigma)
        mine = self._own(x)
        s = as_sigmas(sigma, mine)
        pieces = zip(mine.split(self.chunk), s.split(self.chunk), strict=True)
        mean, variance = (
            torch.cat(parts) for parts in zip(*(own(*p) for p in pieces), strict=True)
        )
        return mean.to(x.dtype), variance.to(x.dtype)

    def _beside(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """The mean by the gradient, and the variance by the network beside it."""
        mean = x + per_item(sigma, x).square() * self._gradient(x, sigma)
        head: VarianceNetwork = self.model.head  # type: ignore[assignment]
        return mean, head(x, sigma)

    def _gradient(self, x: Tensor, sigma: Tensor) -> Tensor:
        # Separations run in inference mode, where nothing can be differentiated.
        with torch.inference_mode(False), torch.enable_grad():
            point = x.clone().requires_grad_()
            total = call_log_prob(self.model, point, sigma.clone()).sum()
            (gradient,) = torch.autograd.grad(total, point)
        return gradient

    def _own(self, x: Tensor) -> Tensor:
        p = next(self.parameters(), None)
        return x if p is None else x.to(p.dtype)


_WIDEST = 40.0
"""Spreads of the data beside which noise is so large that the noisy data is Gaussian."""
_NUDGE = 0.02
"""Length of a difference that stands for a derivative, in sigma."""


class FlowLikelihood(Derived):
    """A prior with log p by the probability flow: what it answers otherwise is the prior's own.

    With t = log(sigma), x moves by dx/dt = x - denoise(x, sigma), and log p falls by the trace of
    I minus the denoiser's Jacobian, up to the largest noise level, where the noisy data is taken to
    be Gaussian with the mean and trace that the denoiser has there. The trace is estimated by
    Hutchinson's probes, the same for all signals, so that their errors cancel in part where signals
    are compared; or exactly, at the cost of one probe per value. Derivatives are differences of
    two answers, so that any prior will do, of any library.

    Args:
        prior: The prior.
        steps: Steps of the classical Runge-Kutta method, evenly over log(sigma).
        probes: Probes of the trace; None for the exact trace.
        seed: Seed of the probes.
    """

    noiseless = False  # the flow starts at a noise level

    def __init__(
        self, prior: Prior, *, steps: int = 16, probes: int | None = 1, seed: int = 0
    ) -> None:
        for name, value in (("steps", steps), ("probes", probes)):
            if value is not None and value < 1:
                raise BasisError(f"{name} must be at least 1, not {value}")
        super().__init__(prior)
        self.steps, self.probes, self.seed = steps, probes, seed

    @property
    def module(self) -> object:
        """The prior's network, where it has one."""
        return getattr(self.prior, "module", None)

    @property
    def log_prob_cost(self) -> int:  # type: ignore[override]
        """Evaluations of one log p: two for every probe, four times a step, and the last level."""
        probes = math.prod(self.shape) if self.probes is None else self.probes
        return self.cost * (2 * probes * (4 * self.steps + 1) + 1)

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self.prior.denoise(x, sigma)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        return self.prior.moments(x, sigma)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self.prior.score(x, sigma)

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        s = as_sigmas(sigma, x)
        if not (s > 0).all():
            raise BasisError("the probability flow starts at a noise level above 0")
        probes = self._probes(x)
        first = s.log()
        # Beyond its own levels a prior is not asked, however small the spread.
        top = first.clamp_min(math.log(min(self.sigma_max, _WIDEST * self.std)))
        step = (top - first) / self.steps
        gained = torch.zeros_like(first)
        for number in range(self.steps):
            t = first + number * step
            a, fall_a = self._rate(x, t, probes)
            b, fall_b = self._rate(x + per_item(step / 2, x) * a, t + step / 2, probes)
            c, fall_c = self._rate(x + per_item(step / 2, x) * b, t + step / 2, probes)
            d, fall_d = self._rate(x + per_item(step, x) * c, t + step, probes)
            x = x + per_item(step / 6, x) * (a + 2 * (b + c) + d)
            gained = gained + step / 6 * (fall_a + 2 * (fall_b + fall_c) + fall_d)
        return gained + self._widest(x, top, probes)

    def _rate(self, x: Tensor, t: Tensor, probes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """dx/dt, shaped as x, and how fast log p falls, (batch,)."""
        sigma = t.exp()
        nudge = per_item(_NUDGE * sigma, x)
        clean, trace = torch.zeros_like(x), torch.zeros_like(t)
        for probe in probes:
            pair = torch.cat([x + nudge * probe, x - nudge * probe])
            ahead, behind = self.prior.denoise(pair, sigma.repeat(2)).chunk(2)
            clean = clean + (ahead + behind) / (2 * len(probes))
            along = ((ahead - behind) * probe / (2 * nudge)).flatten(1).sum(dim=1)
            trace = trace + along / len(probes)
        return x - clean, x[0].numel() - trace

    def _widest(self, x: Tensor, t: Tensor, probes: Sequence[Tensor]) -> Tensor:
        """log p at the largest noise level, (batch,), as that of a Gaussian of the same score."""
        sigma = t.exp()
        away, fall = self._rate(x, t, probes)
        mean = self.prior.denoise(torch.full_like(x[:1], self.center), sigma[:1])
        values = x[0].numel()
        inner = ((x - mean) * away).flatten(1).sum(dim=1) / sigma.square()
        # The trace of C (C + sigma^2)^-1 is log det(1 + C / sigma^2) to first order.
        return -(inner + values * math.log(2 * math.pi) + values - fall) / 2 - values * t

    def _probes(self, x: Tensor) -> list[Tensor]:
        """Signals e, (1, *shape), with mean e e^T = I."""
        count = math.prod(self.shape)
        if self.probes is None:
            # All of one length, so that a difference is as long as that of a random probe.
            rows = torch.eye(count) * math.sqrt(count)
        else:
            generator = torch.Generator().manual_seed(self.seed)
            rows = torch.randint(2, (self.probes, count), generator=generator) * 2.0 - 1.0
        return [row.view(1, *self.shape).to(x) for row in rows]


def with_likelihood(priors: Sequence[Prior]) -> list[Prior]:
    """The priors, those without a likelihood dressed in a `FlowLikelihood`, equal ones alike."""
    dressed = {id(p): p if p.has_likelihood else FlowLikelihood(p) for p in priors}
    return [dressed[id(p)] for p in priors]
