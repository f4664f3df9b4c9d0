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
from basis.priors.prior import Derived, Prior, Range, Shape, in_chunks
from basis.tensors import as_sigmas, per_item


class LikelihoodPrior(Prior):
    """A model with a likelihood as a prior: its score is the gradient of log p.

    Args:
        model: Has `log_prob(x, sigma)`, (batch, channels, *size) and (batch,) to (batch,), in nats.
            A model of one noise level may have `log_prob(x)` only: set its attribute
            `noise_conditioned` to False. A method `moments` is used as by `DenoiserPrior`; a `head`
            that is a `VarianceNetwork` provides the variance. A mapping of noise levels to such
            models becomes a `Ladder`. A module is neither frozen nor moved.
        shape: (channels, *size).
        sigma_min, sigma_max: The range of noise levels it was made for.
        value_range: As for `Prior`; [0, 1] by default.
        chunk: Signals per call at most.
        settings: `center`, `std`, `errors` and `card`, as for `Prior`.

    A score counts as three evaluations: one pass forward, and one backward for two.
    """

    evaluations = 3

    def __init__(
        self,
        model: nn.Module | Mapping[float, nn.Module] | Any,
        shape: Shape,
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "likelihood",
        value_range: Range | None = (0.0, 1.0),
        chunk: int = 256,
        **settings: Any,
    ) -> None:
        super().__init__(
            shape, sigma_min, sigma_max, name=name, value_range=value_range, **settings
        )
        self.model: Any = Ladder(model) if isinstance(model, Mapping) else model
        if not callable(getattr(self.model, "log_prob", None)):
            raise BasisError("a likelihood prior needs a model with log_prob(x, sigma)")
        self.chunk = chunk

    @property
    def module(self) -> Any:
        """The model, by the name it has in a `DenoiserPrior`."""
        return self.model

    @property
    def likelihood_sigma(self) -> float:
        level = getattr(self.model, "likelihood_level", 0.0)
        return min(max(self.sigma_min, level * self.std), self.sigma_max)

    @property
    def _switch_level(self) -> float:
        # The gradient of a density with a variance network is less accurate at small noise than its
        # moments: following it alone was measured to make results worse.
        separate = isinstance(getattr(self.model, "head", None), VarianceNetwork)
        own = 0.0 if separate else super()._switch_level
        return float(getattr(self.model, "switch_level", own))

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        self._check_batch(x)
        with torch.no_grad():
            return in_chunks(
                lambda *piece: (call_log_prob(self.model, *piece),), self, x, sigma, self.chunk
            )[0]

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        self._check_batch(x)
        return in_chunks(lambda *piece: (self._gradient(*piece),), self, x, sigma, self.chunk)[0]

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        score = self.score(x, sigma)
        return x + per_item(sigma, x).square() * score

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        own = getattr(self.model, "moments", None)
        head = getattr(self.model, "head", self.model)
        if isinstance(head, VarianceNetwork):
            own = self._with_head
        if own is None or head is None:
            return super().moments(x, sigma)
        mean, variance = in_chunks(own, self, x, sigma, self.chunk)
        return mean, variance

    def loss(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The training loss of clean signals, a differentiable scalar.

        It is the code length in nats per value at random noise levels. For an unnormalized density
        (one with `slopes`, such as "energy") it is the denoising loss of its gradient.

        Shapes:
            x: (batch, channels, *size), values in the prior's range.
        """
        self.check_signals(x)
        clean, noisy, sigma = self._noisy(x, generator)
        if hasattr(self.model, "slopes"):
            slope, _ = self.model.slopes(noisy, sigma.log())
            denoised = noisy + per_item(sigma, x).square() * slope
            return self._weighted_error(denoised, clean, sigma)
        return -call_log_prob(self.model, noisy, sigma).mean() / x[0].numel()

    def _with_head(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """The mean by the gradient, and the variance by the network for it."""
        mean = x + per_item(sigma, x).square() * self._gradient(x, sigma)
        return mean, self.model.head(x, sigma)

    def _gradient(self, x: Tensor, sigma: Tensor) -> Tensor:
        # Separations run in inference mode, where nothing can be differentiated.
        with torch.inference_mode(False), torch.enable_grad():
            point = x.clone().requires_grad_()
            total = call_log_prob(self.model, point, sigma.clone()).sum()
            (gradient,) = torch.autograd.grad(total, point)
        return gradient


_WIDEST = 40.0
"""The noise level, in units of std, at which the noisy data is taken to be Gaussian."""
_NUDGE = 0.02
"""Length of the finite differences, in units of sigma."""


class FlowLikelihood(Derived):
    """A prior with log p by the probability flow; everything else is that of the prior.

    With t = log(sigma), x moves by dx/dt = x - denoise(x, sigma), and log p falls by the trace of
    I minus the denoiser's Jacobian, up to the largest noise level, where the noisy data is taken to
    be Gaussian with the mean and trace of the denoiser there. The trace is estimated with random
    probes (Hutchinson), the same for all signals, so that their errors partly cancel when signals
    are compared; or exactly, with one probe per value. Derivatives are finite differences, which
    works for any prior of any library.

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
        """The prior's network, or None."""
        return getattr(self.prior, "module", None)

    @property
    def log_prob_evaluations(self) -> int:  # type: ignore[override]
        """Evaluations of one log p: two for every probe, four times a step, and the last level."""
        probes = math.prod(self.shape) if self.probes is None else self.probes
        return self.evaluations * (2 * probes * (4 * self.steps + 1) + 1)

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
        # The prior is not evaluated beyond its own levels.
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
            # Of the same length as a random probe.
            rows = torch.eye(count) * math.sqrt(count)
        else:
            generator = torch.Generator().manual_seed(self.seed)
            rows = torch.randint(2, (self.probes, count), generator=generator) * 2.0 - 1.0
        return [row.view(1, *self.shape).to(x) for row in rows]


def with_likelihood(priors: Sequence[Prior]) -> list[Prior]:
    """The priors, each without a likelihood in a `FlowLikelihood`; equal ones stay equal."""
    found = {id(p): p if p.has_likelihood else FlowLikelihood(p) for p in priors}
    return [found[id(p)] for p in priors]
