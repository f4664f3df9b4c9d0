"""log p of any score prior, along its probability flow.

Song et al. 2021 (arXiv:2011.13456): noise can be added by an ordinary differential equation that
asks for nothing but the score, and a density that moves with a flow changes by its divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from basis._errors import BasisError
from basis._tensors import as_sigmas, per_item
from basis.priors._derived import Derived
from basis.priors._prior import Prior

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
        top = first.clamp_min(math.log(min(self.sigma_max, _WIDEST * self.spread)))
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
