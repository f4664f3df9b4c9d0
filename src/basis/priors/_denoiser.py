"""Score priors: a trained denoiser as a prior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from basis.priors._prior import Prior, as_sigmas


class DenoiserPrior(Prior, nn.Module):
    """A module that denoises images in [0, 1], as a prior.

    Args:
        module: Maps (x, sigma) to E[clean | noisy = x]; x is (batch, channels, height, width), sigma (batch,).
        shape: (channels, height, width).
        sigma_min, sigma_max: The range it was trained on.
        card: What is known of it (data, training, quality, licence), for records.
        chunk: Most images per call of the network; a larger batch is cut. A cache-sized chunk is faster than a
            large one on a CPU.

    It computes in its own precision and answers in that of its input.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "denoiser",
        low: float | None = 0.0,
        high: float | None = 1.0,
        center: float | None = None,
        spread: float | None = None,
        errors: Any = None,
        card: Any = None,
        chunk: int = 256,
    ) -> None:
        nn.Module.__init__(self)
        self.module = module
        self.low, self.high, self.center, self.errors = low, high, center, dict(errors or {})
        self.spread = 0.3 if spread is None else spread
        self.shape, self.sigma_min, self.sigma_max = shape, sigma_min, sigma_max
        self.name, self.card, self.chunk = name, card, chunk

    def to(self, device: torch.device | str | None = None, dtype: Any = None) -> DenoiserPrior:
        return nn.Module.to(self, device, dtype)

    @property
    def device(self) -> torch.device | None:
        p = next(self.module.parameters(), None)
        return None if p is None else p.device

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._call(lambda x, s: (self.module(x, s),), x, sigma)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        if getattr(self.module, "head", None) is not None:
            mean, variance = self._call(self.module.moments, x, sigma)  # type: ignore[arg-type]
            return mean, variance
        return super().moments(x, sigma)

    def _call(
        self, call: Callable[[Tensor, Tensor], Sequence[Tensor]], x: Tensor, sigma: Tensor | float
    ) -> list[Tensor]:
        """The network's answers in the precision of x, cut into chunks."""
        p = next(self.module.parameters(), x)
        own = x.to(p.dtype)
        s = as_sigmas(sigma, own)
        if len(x) <= self.chunk:
            return [out.to(x.dtype) for out in call(own, s)]
        pieces = zip(own.split(self.chunk), s.split(self.chunk), strict=True)
        answers = zip(*(call(*piece) for piece in pieces), strict=True)
        return [torch.cat(parts).to(x.dtype) for parts in answers]
