"""Likelihood priors: anything with log p(x) becomes a prior by automatic differentiation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from basis._errors import BasisError
from basis._tensors import as_sigmas, per_item
from basis.nn import VarianceNetwork
from basis.priors._card import Card
from basis.priors._prior import Prior


class Ladder(nn.Module):
    """One likelihood model per noise level, as the paper trains them; the nearest one answers.

    Args:
        models: Noise level to model; each has `log_prob(x)` or `log_prob(x, sigma)`.
    """

    def __init__(self, models: Mapping[float, nn.Module]) -> None:
        super().__init__()
        if not models or any(not sigma > 0 for sigma in models):
            raise BasisError("a ladder needs one model or more, each at a positive noise level")
        self.sigmas = sorted(models)
        self.rungs = nn.ModuleList(models[sigma] for sigma in self.sigmas)

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) of each item by the model of the nearest level, (batch,)."""
        logs = torch.tensor([math.log(s) for s in self.sigmas], device=sigma.device)
        nearest = (sigma.float().log()[:, None] - logs).abs().argmin(dim=1)
        levels = nearest.unique().tolist()
        if len(levels) == 1:
            return call_log_prob(self.rungs[levels[0]], x, sigma)
        out = x.new_zeros(len(x))
        for level in levels:
            mine = nearest == level
            out = out.index_put((mine,), call_log_prob(self.rungs[level], x[mine], sigma[mine]))
        return out


def call_log_prob(model: Any, x: Tensor, sigma: Tensor) -> Tensor:
    """log p of a model that may or may not ask for the noise level."""
    alone = getattr(model, "noise_conditioned", True) is False
    answer = model.log_prob(x) if alone else model.log_prob(x, sigma)
    if not isinstance(answer, Tensor):
        raise BasisError(
            f"log_prob of {type(model).__name__} must answer with a tensor (batch,), not "
            f"{type(answer).__name__}"
        )
    return answer


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
        low, high, center, spread, errors, card: As for `Prior`; values in [0, 1] by default.
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
        low: float | None = 0.0,
        high: float | None = 1.0,
        center: float | None = None,
        spread: float | None = None,
        errors: Mapping[float, float] | None = None,
        card: Card | None = None,
        chunk: int = 256,
    ) -> None:
        super().__init__(
            shape,
            sigma_min,
            sigma_max,
            name=name,
            low=low,
            high=high,
            center=center,
            spread=spread,
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
        spreads = getattr(self.model, "likelihood_spreads", 0.0)
        return min(max(self.sigma_min, spreads * self.spread), self.sigma_max)

    @property
    def turn_spreads(self) -> float:
        # What a network beside the density knows is in the variance alone: the gradient has nothing
        # of it, and following that at small noise was measured to lose what was found.
        beside = isinstance(getattr(self.model, "head", None), VarianceNetwork)
        own = 0.0 if beside else super().turn_spreads
        return float(getattr(self.model, "turn_spreads", own))

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
